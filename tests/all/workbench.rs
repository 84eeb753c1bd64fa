//! The screen on a real engine with a fake world: keys are typed, jobs run, the screen follows.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use futures_util::{Stream, StreamExt as _, stream};
use patchbench::engine::command::Command;
use patchbench::engine::event::Happened;
use patchbench::engine::fake::FakeWorld;
use patchbench::engine::input::{Actor, ActorRole};
use patchbench::engine::runtime::{self, Engine};
use patchbench::engine::state::State;
use patchbench::recall::trial::{FailKind, Outcome, TrialKey};
use patchbench::session::blobs::BlobStore;
use patchbench::session::store;
use patchbench::ui::app::{Mode, Setup};
use patchbench::ui::keymap::Keymap;
use patchbench::ui::layout::read::built_in;
use patchbench::ui::next;
use patchbench::ui::run::{Exit, Options, run_on};
use patchbench::ui::terminal::Outside;
use patchbench::ui::theme::{Look, Palette, Theme};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use tokio::sync::{mpsc, watch};

/// Shows each frame as text, and counts them.
struct Watched {
    screen: watch::Sender<String>,
    frames: watch::Sender<u64>,
}

impl Outside for Watched {
    fn begin_frame(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end_frame(&mut self, drawn: &Buffer) -> io::Result<()> {
        let width = drawn.area.width as usize;
        let lines =
            drawn.content.chunks(width).map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
        self.screen.send_replace(lines.collect::<Vec<_>>().join("\n"));
        self.frames.send_modify(|n| *n += 1);
        Ok(())
    }

    fn copy(&mut self, _text: &str) -> io::Result<()> {
        Ok(())
    }

    fn ring(&mut self, _why: &str) -> io::Result<()> {
        Ok(())
    }
}

fn judge(arm: &BTreeMap<String, String>, _key: &TrialKey) -> Outcome {
    if arm.iter().any(|(patch, level)| patch.starts_with("triton-indexer") && level == "on") {
        Outcome::Fail { how: FailKind::Wrong }
    } else {
        Outcome::Pass
    }
}

/// A person at the keyboard.
struct Person {
    keys: mpsc::UnboundedSender<io::Result<Event>>,
    screen: watch::Receiver<String>,
    frames: watch::Receiver<u64>,
}

impl Person {
    fn press(&self, code: KeyCode) {
        self.keys.send(Ok(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))).unwrap();
    }

    fn types(&self, text: &str) {
        text.chars().for_each(|c| self.press(KeyCode::Char(c)));
    }

    async fn sees(&mut self, words: &str) -> String {
        let seen = self.screen.wait_for(|s| s.contains(words));
        if let Ok(Ok(screen)) = tokio::time::timeout(Duration::from_secs(20), seen).await {
            return screen.clone();
        }
        panic!("`{words}` never came; the screen is\n{}", *self.screen.borrow())
    }
}

async fn engine(dir: &std::path::Path) -> Engine {
    let session = store::create(dir, "test").unwrap();
    let world = FakeWorld::new(judge, Duration::from_millis(1));
    let actor = Actor::driver("ana");
    let first = Happened::SessionStarted { id: uuid::Uuid::nil(), name: "test".into(), program: "0".into(), seed: 1 };
    let engine = runtime::start(session, Some(first), &actor, Arc::new(world)).unwrap();
    let case = crate::common::case(&["triton-indexer", "mhc-bf16"]);
    engine.handle.ask(actor, Command::OpenCase { case: Box::new(case) }).await.unwrap();
    engine
}

fn options() -> Options {
    Options {
        setup: Setup {
            mode: Mode::Live(ActorRole::Driver),
            look: Look { theme: Theme::Dark, palette: Palette::Indexed, ascii: false },
            keymap: Keymap::from_table(),
            layouts: built_in(),
            remarks: Vec::new(),
        },
        actor: Actor::driver("ana"),
        next: next::step,
        notify: String::new(),
        blobs: BlobStore::existing("none"),
    }
}

/// Runs the screen while `act` sits at the keyboard; gives what the screen ended with and the last state.
async fn with_person<F, R>(act: F) -> (Exit, Arc<State>)
where
    F: FnOnce(Person) -> R,
    R: Future<Output = ()>,
{
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let (keys, receiver) = mpsc::unbounded_channel();
    let (screen, screen_seen) = watch::channel(String::new());
    let (frames, frames_seen) = watch::channel(0);
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    let mut outside = Watched { screen, frames };
    let person = Person { keys, screen: screen_seen, frames: frames_seen };
    let handle = engine.handle.clone();
    let events = channel(receiver);
    let screen = run_on(&mut terminal, &mut outside, events, std::future::pending(), handle, options());
    let (exit, ()) = tokio::join!(screen, act(person));
    let state = engine.handle.state.clone();
    engine.handle.close().await;
    engine.ended().await.unwrap();
    // What was typed last may reach the state only while the engine closes.
    let state = state.borrow().clone();
    (exit, state)
}

fn channel(receiver: mpsc::UnboundedReceiver<io::Result<Event>>) -> impl Stream<Item = io::Result<Event>> + Unpin {
    stream::unfold(receiver, |mut r| async move { r.recv().await.map(|e| (e, r)) }).boxed()
}

#[tokio::test]
async fn toggle_confirm_recall_and_the_matrix_turns() {
    let (exit, state) = with_person(|mut person| async move {
        person.sees("lab").await;
        person.types(":restart lab");
        person.press(KeyCode::Enter);
        person.sees("run this?").await;
        person.types("y");
        person.sees("boot b1").await;
        person.types("r");
        person.sees("6/6 failed, running now (b1)").await;
        person.types(":toggle triton-indexer off");
        person.press(KeyCode::Enter);
        let question = person.sees("run this?").await;
        assert!(question.contains("true # "), "the exact commands are shown:\n{question}");
        person.types("y");
        person.sees("boot b2").await;
        person.sees("CHANGED").await;
        person.types("r");
        person.sees("0/6 failed, running now (b2)").await;
        person.types("q");
        person.sees("what stays?").await;
        person.types("k");
    })
    .await;
    assert_eq!(exit, Exit::Left);
    assert_eq!(state.boots.len(), 2);
    assert_eq!(state.trials.len(), 12);
}

#[tokio::test]
async fn a_lost_terminal_leaves_the_engine_running() {
    let (exit, state) = with_person(|mut person| async move {
        person.sees("lab").await;
    })
    .await;
    assert_eq!(exit, Exit::TerminalLost);
    assert!(state.case.is_some());
}

#[tokio::test]
async fn nothing_is_drawn_while_nothing_changes_and_a_flood_costs_few_frames() {
    let (_, state) = with_person(|mut person| async move {
        person.sees("lab").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = *person.frames.borrow();
        for _ in 0..2000 {
            person.press(KeyCode::Char('j'));
        }
        person.types("Ndone");
        person.press(KeyCode::Enter);
        person.sees("note written").await;
        let frames = *person.frames.borrow() - before;
        assert!(frames < 60, "2000 keys cost {frames} frames");
    })
    .await;
    assert_eq!(state.notes.len(), 1);
}
