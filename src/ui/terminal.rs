//! The real terminal: taken over on entry, given back on every way out.
//!
//! Not responsible for what is drawn.

use std::io::{self, Stdout, Write as _};
use std::thread::{self, ThreadId};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;

/// What the loop does with a terminal besides drawing.
pub trait Outside {
    /// Before a frame is written.
    ///
    /// # Errors
    /// The terminal is gone.
    fn begin_frame(&mut self) -> io::Result<()>;
    /// After a frame was written.
    ///
    /// # Errors
    /// The terminal is gone.
    fn end_frame(&mut self, drawn: &Buffer) -> io::Result<()>;
    /// Puts a text into the clipboard.
    ///
    /// # Errors
    /// The terminal is gone.
    fn copy(&mut self, text: &str) -> io::Result<()>;
    /// Rings, and says why where the terminal can show it.
    ///
    /// # Errors
    /// The terminal is gone.
    fn ring(&mut self, why: &str) -> io::Result<()>;
}

/// The terminal of this process, in raw mode on its second screen, until it is dropped.
#[derive(Debug)]
pub struct Guard {
    _private: (),
}

impl Guard {
    /// Takes the terminal over; a panic of this thread gives it back before it is printed.
    ///
    /// # Errors
    /// Standard output is no terminal, or it is gone.
    pub fn enter() -> io::Result<(Self, Terminal<CrosstermBackend<Stdout>>)> {
        enable_raw_mode()?;
        let guard = Self { _private: () };
        execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        restore_on_panic_of(thread::current().id());
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok((guard, terminal))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back; a terminal that is gone needs nothing.
pub fn restore() {
    let _ = execute!(io::stdout(), EndSynchronizedUpdate, DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A panic elsewhere must not tear the screen down while it is still drawn; it goes to the log.
fn restore_on_panic_of(screen: ThreadId) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if thread::current().id() == screen {
            restore();
            before(info);
        } else {
            tracing::error!("{info}");
        }
    }));
}

/// The terminal of this process.
#[derive(Clone, Debug, Default)]
pub struct RealTerminal {
    /// The user's command for the end of a long step; empty is none.
    pub notify: String,
}

impl Outside for RealTerminal {
    fn begin_frame(&mut self) -> io::Result<()> {
        execute!(io::stdout(), BeginSynchronizedUpdate)
    }

    fn end_frame(&mut self, _drawn: &Buffer) -> io::Result<()> {
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(io::stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    fn ring(&mut self, why: &str) -> io::Result<()> {
        // OSC 9 is a notification; control characters in it would end it early.
        let why: String = why.chars().filter(|c| !c.is_control()).take(120).collect();
        crate::notify::run(&self.notify, &why);
        let mut out = io::stdout();
        write!(out, "\x07\x1b]9;patchbench: {why}\x07")?;
        out.flush()
    }
}
