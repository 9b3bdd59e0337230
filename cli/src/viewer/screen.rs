//! The state of the screen, and the effect of each key.

use std::ops::ControlFlow;

use lab::view::{Action, Browser, History};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::theme::Theme;

/// Maximum bytes of a text to search for.
const LONGEST: usize = 200;

/// A list next to the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Holders of memory.
    Holders,
    /// Segments with their blocks.
    Segments,
}

/// State of the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(super) browser: Browser,
    pub(super) theme: Theme,
    /// The list that keys scroll; if there is room for one only, it is the one shown.
    pub(super) list: List,
    /// Rows above the visible ones, of holders and of segments.
    pub(super) scrolled: [usize; 2],
    /// True while the keys are explained.
    pub(super) help: bool,
    /// Text typed after `/`; `None` if no search is being typed.
    pub(super) typed: Option<String>,
}

impl Screen {
    /// Opens a history, which must not be empty.
    pub(crate) fn new(history: History, theme: Theme) -> Self {
        let browser = Browser::new(history);
        Self { browser, theme, list: List::Holders, scrolled: [0; 2], help: false, typed: None }
    }

    /// Performs the action of a key; returns `Break` to quit.
    pub(super) fn update(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return ControlFlow::Break(());
        }
        if let Some(text) = self.typed.take() {
            self.typed(text, key.code, control);
            return ControlFlow::Continue(());
        }
        if self.help {
            self.help = false;
            return if key.code == KeyCode::Char('q') { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Tab | KeyCode::BackTab => {
                self.list = if self.list == List::Holders { List::Segments } else { List::Holders };
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            code => {
                if let Some(action) = action(code, key.modifiers.contains(KeyModifiers::SHIFT)) {
                    self.browser.apply(&action);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Handles a key while a text is typed.
    fn typed(&mut self, mut text: String, code: KeyCode, control: bool) {
        match code {
            KeyCode::Enter => return self.browser.apply(&Action::Find(text)),
            KeyCode::Esc => return,
            KeyCode::Backspace if text.is_empty() => return,
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char('u') if control => text.clear(),
            KeyCode::Char(c) if !control && text.len() < LONGEST => text.push(c),
            _ => {}
        }
        self.typed = Some(text);
    }

    fn scroll(&mut self, rows: isize) {
        let moment = self.browser.moment();
        let rows_of = [moment.holders.len(), moment.segments.len()];
        let which = self.list as usize;
        // If the list became shorter, scroll from its end.
        let most = rows_of[which].saturating_sub(1);
        self.scrolled[which] = self.scrolled[which].min(most).saturating_add_signed(rows).min(most);
    }
}

/// Returns what a key does to the browser.
fn action(code: KeyCode, shift: bool) -> Option<Action> {
    Some(match code {
        KeyCode::Left if shift => Action::ByPercent(-1),
        KeyCode::Right if shift => Action::ByPercent(1),
        KeyCode::Char('H') => Action::ByPercent(-1),
        KeyCode::Char('L') => Action::ByPercent(1),
        KeyCode::Left | KeyCode::Char('h') => Action::By(-1),
        KeyCode::Right | KeyCode::Char('l') => Action::By(1),
        KeyCode::PageUp => Action::Step(false),
        KeyCode::PageDown => Action::Step(true),
        KeyCode::Home => Action::First,
        KeyCode::End => Action::Last,
        KeyCode::Char('m') => Action::Highest,
        KeyCode::Char('p') => Action::Peak(true),
        KeyCode::Char('P') => Action::Peak(false),
        KeyCode::Char('o') => Action::Failure(true),
        KeyCode::Char('O') => Action::Failure(false),
        KeyCode::Char('n') => Action::Hit(true),
        KeyCode::Char('N') => Action::Hit(false),
        KeyCode::Char('+' | '=') => Action::Zoom(true),
        KeyCode::Char('-' | '_') => Action::Zoom(false),
        _ => return None,
    })
}
