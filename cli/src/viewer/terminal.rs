//! The terminal: taken for the time of looking, and given back however that ends.

use std::io::{self, IsTerminal, stdin, stdout};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::draw::draw;
use super::screen::Screen;
use crate::interrupt;

/// How long a key is waited for before signals are looked at.
const WAIT: Duration = Duration::from_millis(100);

/// True if keys can be read and a screen can be drawn.
pub(crate) fn there_is_one() -> bool {
    let can_draw = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    stdin().is_terminal() && stdout().is_terminal() && can_draw
}

/// Gives the terminal back when it is dropped; a panic does so before its message, by a hook of the library.
struct Taken(DefaultTerminal);

impl Taken {
    fn new() -> io::Result<Self> {
        interrupt::before_the_end(ratatui::restore);
        let terminal = ratatui::try_init();
        if terminal.is_err() {
            // It may be taken in part.
            ratatui::restore();
        }
        terminal.map(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // The hook has done it before the message, which a second time could overwrite.
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

/// Shows the screen and does what keys say, until one says to quit or a signal asks for the end.
///
/// # Errors
/// The terminal's: it cannot be read or written.
pub(crate) fn run(screen: &mut Screen) -> io::Result<()> {
    let mut terminal = Taken::new()?;
    loop {
        terminal.0.draw(|frame| draw(frame.buffer_mut(), screen))?;
        while !event::poll(WAIT)? {
            if interrupt::asked() {
                return Ok(());
            }
        }
        // A key that is held down may be faster than the terminal: all that have come are one change.
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && screen.update(key).is_break()
            {
                return Ok(());
            }
        }
        if interrupt::asked() {
            return Ok(());
        }
    }
}
