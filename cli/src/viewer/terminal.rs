//! The terminal: taken while the viewer runs, and given back however it ends.

use std::io::{self, IsTerminal, stdin, stdout};
use std::mem::ManuallyDrop;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::draw::draw;
use super::screen::Screen;
use crate::interrupt;

/// Maximum wait for a key before signals are checked.
const WAIT: Duration = Duration::from_millis(100);

/// True if keys can be read and a screen can be drawn.
pub(crate) fn there_is_one() -> bool {
    let can_draw = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    stdin().is_terminal() && stdout().is_terminal() && can_draw
}

/// Gives the terminal back when it is dropped; a panic does so before its message, by a hook of the library.
///
/// The library's own drop would print failures, and panic if the terminal is gone and nothing can be printed.
struct Taken(ManuallyDrop<DefaultTerminal>);

impl Taken {
    fn new() -> io::Result<Self> {
        interrupt::before_the_end(restore);
        let terminal = ratatui::try_init();
        if terminal.is_err() {
            // The terminal may be taken only in part.
            restore();
        }
        terminal.map(|terminal| Self(ManuallyDrop::new(terminal)))
    }
}

/// Leaves raw mode and the screen that was taken, if the terminal is still there.
fn restore() {
    let _ = ratatui::try_restore();
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        // After a panic the hook has left the screen already; leaving it again could overwrite the message.
        if !std::thread::panicking() {
            restore();
        }
    }
}

/// Waits for a key or a new size of the window; false if neither came in time.
///
/// # Errors
/// The terminal is gone. The library would read from it forever, so this is checked first.
fn comes() -> io::Result<bool> {
    #[cfg(unix)]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let keys = stdin();
        let mut ready = [PollFd::new(&keys, PollFlags::IN)];
        // A signal ends the wait early, and so does a new size of the window; both are checked below.
        let _ = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: i64::from(WAIT.subsec_nanos()) }));
        if ready[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is gone"));
        }
        event::poll(Duration::ZERO)
    }
    #[cfg(not(unix))]
    event::poll(WAIT)
}

/// Shows the screen and handles keys, until a key quits or a signal asks the program to end.
///
/// # Errors
/// The terminal's: it cannot be read or written.
pub(crate) fn run(screen: &mut Screen) -> io::Result<()> {
    let mut terminal = Taken::new()?;
    loop {
        terminal.0.draw(|frame| draw(frame.buffer_mut(), screen))?;
        while !comes()? {
            if interrupt::asked() {
                return Ok(());
            }
        }
        // A key that is held down may be faster than the terminal: all keys that have come are handled before the next drawing.
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
