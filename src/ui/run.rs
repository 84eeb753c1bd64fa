//! The loop of the screen: takes keys, states and live messages, drains all that waits, draws once.
//!
//! It draws at once if the last frame is old enough, else when it is, and not at all while nothing changes.
//! It is generic over the stream of terminal events and over the terminal, so that tests type keys into it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::Backend;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::engine::input::Actor;
use crate::engine::live::Live;
use crate::engine::runtime::EngineHandle;
use crate::engine::state::State;
use crate::recall::transcript::Transcript;
use crate::session::blobs::BlobStore;
use crate::ui::app::{App, Request, Setup};
use crate::ui::terminal::{Guard, Outside, RealTerminal};

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(16);
/// Live messages taken before the keys are looked at again.
const LIVE_AT_ONCE: usize = 2000;
/// Terminal events taken before a frame is due.
const EVENTS_AT_ONCE: usize = 200;

/// Why the screen closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The person left.
    Left,
    /// SIGTERM, SIGHUP or SIGINT came.
    Signalled,
    /// The terminal is gone; the engine goes on.
    TerminalLost,
    /// The engine has ended.
    EngineEnded,
}

/// Why the screen could not be run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The terminal said no.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// What the loop is started with.
pub struct Options {
    /// Keys, layouts, look, and what may be done.
    pub setup: Setup,
    /// Who acts here.
    pub actor: Actor,
    /// Names the cheapest next step.
    pub next: fn(&State) -> String,
    /// The user's command for the end of a long step; empty is none.
    pub notify: String,
    /// Where transcripts are read; nothing is written there.
    pub blobs: BlobStore,
}

/// Takes this process's terminal over, runs the screen on it, and gives it back on every way out.
///
/// # Errors
/// Standard output is no terminal.
pub async fn run(handle: EngineHandle, options: Options) -> Result<Exit, RunError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = hangup.recv() => (),
            _ = interrupt.recv() => (),
        }
    };
    let (guard, mut terminal) = Guard::enter()?;
    let (reader, events) = terminal_events();
    let mut outside = RealTerminal { notify: options.notify.clone() };
    let exit = run_on(&mut terminal, &mut outside, events, stop, handle, options).await;
    reader.abort();
    drop(guard);
    // The guard has shown the cursor. Dropping the terminal would try that again, and print a complaint to a
    // terminal that may be gone, which ends the process instead of the screen.
    std::mem::forget(terminal);
    Ok(exit)
}

/// The events of this process's terminal, through a channel.
///
/// The terminal's own stream wakes only the first one who found it empty, so a look without waiting would
/// leave later keys unnoticed; a channel wakes whoever looked last.
fn terminal_events() -> (JoinHandle<()>, impl Stream<Item = io::Result<Event>> + Unpin) {
    let (sender, mut receiver) = mpsc::channel(EVENTS_AT_ONCE);
    let reader = tokio::spawn(async move {
        let mut events = EventStream::new();
        while let Some(event) = events.next().await {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    });
    (reader, stream::poll_fn(move |context| receiver.poll_recv(context)))
}

/// Runs the screen on any terminal and any stream of events until the person leaves, `stop` is ready,
/// the events end, or the engine ends.
pub async fn run_on<B: Backend>(
    terminal: &mut Terminal<B>,
    outside: &mut impl Outside,
    mut events: impl Stream<Item = io::Result<Event>> + Unpin,
    stop: impl Future<Output = ()>,
    mut handle: EngineHandle,
    options: Options,
) -> Exit {
    let mut live = handle.live.subscribe();
    let first: Arc<State> = handle.state.borrow_and_update().clone();
    let mut app = App::new(options.setup, first, Timestamp::now());
    let mut last_frame: Option<Instant> = None;
    let mut tick = Instant::now();
    let mut next: Option<(u64, String)> = None;
    tokio::pin!(stop);
    loop {
        if app.take_dirty() || last_frame.is_none() {
            let due = last_frame.map_or_else(Instant::now, |at| at + FRAME);
            if due <= Instant::now() {
                let now = Timestamp::now();
                if next.as_ref().is_none_or(|(seq, _)| *seq != app.state().seq) {
                    next = Some((app.state().seq, (options.next)(app.state())));
                }
                let next = next.as_ref().map_or("", |(_, line)| line);
                let drawn = outside.begin_frame().is_ok()
                    && terminal
                        .draw(|f| app.draw(f, now, next))
                        .is_ok_and(|done| outside.end_frame(done.buffer).is_ok());
                if !drawn {
                    return Exit::TerminalLost;
                }
                app.take_dirty();
                last_frame = Some(Instant::now());
                tick = Instant::now() + app.next_tick().unwrap_or(Duration::from_hours(1));
            } else {
                app.mark_dirty();
                tick = due;
            }
        }
        let mut requests = Vec::new();
        let mut lost = false;
        tokio::select! {
            biased;
            () = &mut stop => return Exit::Signalled,
            event = events.next() => match event {
                Some(Ok(event)) => requests.extend(take_event(&mut app, event)),
                Some(Err(_)) | None => return Exit::TerminalLost,
            },
            changed = handle.state.changed() => {
                if changed.is_err() {
                    return Exit::EngineEnded;
                }
                let state = handle.state.borrow_and_update().clone();
                requests.extend(app.update_state(state));
            }
            message = live.recv() => match message {
                Ok(message) => app.take_live(message),
                Err(RecvError::Lagged(count)) => app.take_live(Live::Lost { count }),
                Err(RecvError::Closed) => return Exit::EngineEnded,
            },
            () = sleep_until(tick) => app.mark_dirty(),
        }
        // Everything that waits already, so that a flood costs one frame, not one frame each.
        for _ in 0..EVENTS_AT_ONCE {
            match events.next().now_or_never() {
                Some(Some(Ok(event))) => requests.extend(take_event(&mut app, event)),
                None => break,
                Some(_) => {
                    lost = true;
                    break;
                }
            }
        }
        for _ in 0..LIVE_AT_ONCE {
            match live.try_recv() {
                Ok(message) => app.take_live(message),
                Err(TryRecvError::Lagged(count)) => app.take_live(Live::Lost { count }),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        for request in requests {
            let done = match request {
                Request::Command(command) => {
                    if handle.send(options.actor.clone(), command).await.is_err() {
                        return Exit::EngineEnded;
                    }
                    true
                }
                Request::Copy(text) => outside.copy(&text).is_ok(),
                Request::Bell(why) => outside.ring(&why).is_ok(),
                Request::Transcript { trial, hash } => {
                    let read = Transcript::read(&options.blobs, &hash);
                    app.show_transcript(trial, read.map_err(|e| e.to_string()));
                    true
                }
                Request::Redraw => {
                    app.mark_dirty();
                    terminal.clear().is_ok()
                }
                Request::Quit => return Exit::Left,
            };
            lost |= !done;
        }
        if lost {
            return Exit::TerminalLost;
        }
    }
}

fn take_event(app: &mut App, event: Event) -> Vec<Request> {
    match event {
        Event::Key(key) => app.handle_key(key),
        Event::Paste(text) => app.handle_paste(&text),
        Event::Resize(..) => {
            app.mark_dirty();
            Vec::new()
        }
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) => Vec::new(),
    }
}
