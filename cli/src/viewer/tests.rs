use std::path::{Path, PathBuf};

use lab::report::{Event, Recording, Source, read};
use lab::view::History;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::{Screen, Theme};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/traces/tests/golden/snapshots").join(name)
}

fn opened(name: &str) -> Screen {
    let Source::Recording(mut recording) = read::open(&golden(name)).unwrap() else { panic!("a result") };
    recording.name = name.to_string();
    Screen::new(History::from_recording(*recording), Theme::new(false))
}

/// What a terminal of this size shows, line by line.
fn shown(screen: &Screen, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame.buffer_mut(), screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |row: u16| {
        let line: String = (0..width).map(|column| buffer[(column, row)].symbol()).collect();
        line.trim_end().to_string() + "\n"
    };
    (0..height).map(line).collect()
}

fn typed(screen: &mut Screen, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        assert!(screen.update(KeyEvent::new(code, KeyModifiers::NONE)).is_continue(), "{key:?}");
    }
}

/// Compares with a screen in the repository. With `SCREENS=write` it is written instead; read it before you commit it.
fn same(screen: &Screen, size: (u16, u16), file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/viewer/screens").join(file);
    let shown = shown(screen, size);
    if std::env::var_os("SCREENS").is_some_and(|wanted| wanted == "write") {
        std::fs::write(&path, &shown).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown == kept, "{file} is\n{kept}\nbut the screen shows\n{shown}");
}

#[test]
fn a_screen_of_80_by_24() {
    same(&opened("cnn_b128_stacks.pickle"), (80, 24), "80x24.txt");
}

#[test]
fn the_smallest_screen() {
    same(&opened("mlp_oom_plain.pickle"), (40, 12), "40x12.txt");
}

#[test]
fn a_large_screen_has_both_lists() {
    same(&opened("mlp_expandable.pickle"), (200, 60), "200x60.txt");
}

#[test]
fn segments_after_a_search_and_a_zoom() {
    let mut screen = opened("cnn_b128_stacks.pickle");
    typed(&mut screen, "/conv\n++");
    let _ = screen.update(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE));
    same(&screen, (80, 24), "search.txt");
}

#[test]
fn keys_are_explained() {
    let mut screen = opened("mlp_oom_plain.pickle");
    typed(&mut screen, "?");
    same(&screen, (80, 24), "help.txt");
    assert_eq!(shown(&screen, (40, 12)).lines().count(), 12);
    typed(&mut screen, "x");
    assert!(shown(&screen, (80, 24)).contains("Held by"));
}

#[test]
fn every_size_is_drawn() {
    let mut screens = ["cnn_b128_stacks.pickle", "mlp_oom_plain.pickle", "gpt_untied_plain.pickle"].map(opened);
    for screen in &mut screens {
        for size in
            [(1, 1), (39, 12), (40, 11), (40, 12), (59, 13), (60, 18), (80, 24), (109, 30), (110, 30), (250, 90)]
        {
            for keys in ["", "+", "++++++++++++", "----------------", "/a\n"] {
                typed(screen, keys);
                let shown = shown(screen, size);
                assert!(shown.lines().count() == usize::from(size.1) && !shown.contains("\u{1b}"));
            }
            let _ = screen.update(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE));
        }
    }
}

#[test]
fn each_key_does_what_it_says() {
    let mut screen = opened("mlp_oom_plain.pickle");
    let press = |screen: &mut Screen, code, modifiers| screen.update(KeyEvent::new(code, modifiers));
    let none = KeyModifiers::NONE;
    let at = screen.browser.cursor();
    assert_eq!(Some(&at), screen.browser.history.failures.first());
    assert!(press(&mut screen, KeyCode::Left, none).is_continue());
    assert_eq!(screen.browser.cursor(), at - 1);
    let _ = press(&mut screen, KeyCode::Left, KeyModifiers::SHIFT);
    assert_eq!(screen.browser.cursor(), at - 1 - (screen.browser.shown() / 100).max(1));
    for code in
        [KeyCode::PageUp, KeyCode::PageDown, KeyCode::Home, KeyCode::End, KeyCode::Up, KeyCode::Down, KeyCode::F(5)]
    {
        assert!(press(&mut screen, code, none).is_continue());
    }
    let _ = press(&mut screen, KeyCode::Home, none);
    typed(&mut screen, "o");
    assert_eq!(screen.browser.cursor(), at);
    // While a text is typed, letters are its letters, and Esc ends only that.
    typed(&mut screen, "/q?");
    assert_eq!(screen.typed.as_deref(), Some("q?"));
    assert!(press(&mut screen, KeyCode::Esc, none).is_continue() && screen.typed.is_none());
    assert!(press(&mut screen, KeyCode::Esc, none).is_break());
    assert!(press(&mut screen, KeyCode::Char('q'), none).is_break());
    typed(&mut screen, "/a");
    assert!(press(&mut screen, KeyCode::Char('c'), KeyModifiers::CONTROL).is_break());
}

/// Names from a file must not act on the terminal, nor move the text around them.
#[test]
fn names_with_control_characters_are_shown_as_escapes() {
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\u{202e}x\ny\u{9b}31m";
    let mut recording = Recording::new(hostile);
    let (name, category) = (recording.intern(hostile), recording.category(hostile));
    recording.push(Event::Phase { name });
    let (requested_bytes, bytes) = (512, 512);
    recording.push(Event::SegmentAlloc { address: 0, bytes: 2 << 20 });
    recording.push(Event::Alloc { address: 0, requested_bytes, bytes, category, op: name, scope: name });
    recording.push(Event::Oom { requested_bytes, op: name });
    recording.limit = Some((hostile.into(), 4 << 20));
    let mut screen = Screen::new(History::from_recording(recording), Theme::new(true));
    typed(&mut screen, "/");
    typed(&mut screen, "owned\n");
    for size in [(40, 12), (80, 24), (200, 60)] {
        let shown = shown(&screen, size);
        let acts = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!shown.contains(acts), "{shown}");
        assert!(shown.contains("\\u{1b}]0;"), "{shown}");
    }
}

#[test]
fn without_colors_there_are_none() {
    let screen = opened("mlp_oom_plain.pickle");
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    terminal.draw(|frame| draw(frame.buffer_mut(), &screen)).unwrap();
    let plain = ratatui::style::Color::Reset;
    assert!(terminal.backend().buffer().content().iter().all(|cell| cell.fg == plain && cell.bg == plain));
}
