//! `view` through a pseudo-terminal: what keys do, that the terminal is given back, and what is refused.
#![cfg(all(target_os = "linux", feature = "view"))]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{done, refused};
use crate::markdown::blocks;

const WAIT: Duration = Duration::from_secs(60);
const SNAPSHOT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/traces/tests/golden/snapshots/mlp_oom_plain.pickle");

/// The program on a terminal of 24 lines of 80 columns.
struct Session {
    child: Child,
    keys: File,
    /// The terminal as the program has it; kept open, so that its settings can be read afterwards.
    terminal: File,
    output: Receiver<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Session {
    fn start(args: &[&str]) -> Self {
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut keys, mut terminal) = (0, 0);
        let (name, settings) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the two numbers and the size live through the call; the name and the settings may be null.
        let opened = unsafe { libc::openpty(&mut keys, &mut terminal, name, settings, &size) };
        assert_eq!(opened, 0, "a pseudo-terminal");
        // A program that had the other end of its own terminal would never find it gone.
        for end in [keys, terminal] {
            // SAFETY: the call takes numbers alone, and both are open.
            assert_eq!(unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
        }
        // SAFETY: both were just opened, and nobody else has them.
        let (keys, terminal) = unsafe { (File::from_raw_fd(keys), File::from_raw_fd(terminal)) };
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let end = || terminal.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: between fork and exec only these two calls of the system are made, which are safe there.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY as _, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let (sender, output) = channel();
        let mut from = keys.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read) = from.read(&mut bytes) {
                if read == 0 || sender.send(bytes[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, terminal, output, bytes: Vec::new() }
    }

    /// Reads until a line of the screen has a text.
    fn sees(&mut self, text: &str) {
        let start = Instant::now();
        while !screen(&self.seen()).iter().any(|line| line.contains(text)) {
            assert!(start.elapsed() < WAIT, "{text:?} does not come:\n{}", screen(&self.seen()).join("\n"));
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.bytes.extend(bytes);
            }
        }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end; returns the exit code.
    fn ends(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
                    self.bytes.extend(bytes);
                }
                return status.code();
            }
            assert!(start.elapsed() < WAIT, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether lines are edited and echoed, and signals are sent: what raw mode turns off.
    fn is_cooked(&self) -> bool {
        // SAFETY: all zeros are a value of this struct of numbers, and the call fills it; the file is open.
        let settings = unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.terminal.as_raw_fd(), &mut settings), 0);
            settings
        };
        let wanted = libc::ICANON | libc::ECHO | libc::ISIG;
        settings.c_lflag & wanted == wanted
    }

    fn was_given_back(&self) {
        assert!(self.is_cooked());
        let seen = self.seen();
        let last = |sequence: &str| seen.rfind(sequence).unwrap_or_else(|| panic!("{sequence:?}: {seen:?}"));
        assert!(last("\u{1b}[?1049l") > last("\u{1b}[?1049h"), "the screen of before is shown again");
        assert!(last("\u{1b}[?25h") > last("\u{1b}[?25l"), "the cursor is shown again");
    }
}

/// The screen after what a program wrote: moves of the cursor and text, as one character a column; colours are left out.
fn screen(written: &str) -> Vec<String> {
    let mut lines = vec![vec![' '; 80]; 24];
    let (mut row, mut column) = (0, 0);
    let mut parts = written.split('\u{1b}');
    let mut put = |text: &str, row: usize, column: &mut usize| {
        for c in text.chars() {
            if let Some(cell) = lines.get_mut(row).and_then(|line: &mut Vec<char>| line.get_mut(*column)) {
                *cell = c;
            }
            *column += 1;
        }
    };
    put(parts.next().unwrap_or_default(), row, &mut column);
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(part.len());
        let (code, text) = part.split_at(end);
        if text.starts_with('H') {
            let mut numbers = code.trim_start_matches('[').split(';').map(|n| n.parse().unwrap_or(1usize));
            (row, column) = (numbers.next().unwrap_or(1) - 1, numbers.next().unwrap_or(1) - 1);
        }
        put(text.get(1..).unwrap_or_default(), row, &mut column);
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_move_and_q_gives_the_terminal_back() {
    let mut session = Session::start(&["view", SNAPSHOT]);
    session.sees("out of memory");
    assert!(!session.is_cooked());
    session.press("?");
    session.sees("the highest moment");
    session.press("x");
    session.sees("Held by");
    session.press("/nowhere\r");
    session.sees("no line, module or operator has");
    session.press("\u{1b}[D");
    session.sees("event 362 of 460");
    session.press("o");
    session.sees("event 363 of 460");
    session.press("q");
    assert_eq!(session.ends(), Some(0));
    session.was_given_back();
}

/// The guide shows a terminal of 24 lines and 80 columns.
#[test]
fn the_guide_shows_the_screen() {
    let folder = tempfile::tempdir().unwrap();
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/traces/tests/golden/recordings/unet_oom.pickle.gz");
    let path = folder.path().join("snapshot.pickle");
    let mut from = flate2::read::GzDecoder::new(File::open(packed).unwrap());
    std::io::copy(&mut from, &mut File::create(&path).unwrap()).unwrap();
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide.md")).unwrap();
    let all = blocks(&guide);
    let at = all.iter().position(|block| block.text.starts_with("vramlab view snapshot.pickle")).unwrap();
    let shown: Vec<String> = all[at + 1].text.lines().map(|line| line.trim_end().to_string()).collect();
    let mut session = Session::start(&["view", path.to_str().unwrap()]);
    session.sees("? keys");
    let seen: Vec<String> = screen(&session.seen()).iter().map(|line| line.trim_end().to_string()).collect();
    assert_eq!(shown, seen, "{}", seen.join("\n"));
}

#[test]
fn ctrl_c_and_signals_give_the_terminal_back() {
    let mut session = Session::start(&["view", SNAPSHOT]);
    session.sees("Held by");
    session.press("\u{3}");
    assert_eq!(session.ends(), Some(0));
    session.was_given_back();
    let mut session = Session::start(&["view", SNAPSHOT, "--color", "never"]);
    session.sees("Held by");
    // SAFETY: the process is a child that has not been waited for, so its number is its own.
    assert_eq!(unsafe { libc::kill(session.child.id() as i32, libc::SIGTERM) }, 0);
    assert_eq!(session.ends(), Some(0));
    session.was_given_back();
}

/// A closed window, or a connection that broke: nobody can press a key any more.
#[test]
fn it_ends_where_its_terminal_is_gone() {
    let mut session = Session::start(&["view", SNAPSHOT]);
    session.sees("Held by");
    // The thread that reads has an end of its own. It gives it up when nobody takes what it reads: what a key draws.
    session.output = channel().1;
    session.press("l");
    let nothing = || File::open("/dev/null").unwrap();
    (session.keys, session.terminal) = (nothing(), nothing());
    // 0 where the signal is seen first, 3 where the terminal is found to be gone; it does not abort.
    let code = session.ends();
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
}

#[test]
fn events_of_a_run_are_looked_at_with_the_limit_of_its_result() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (events, result) = (path("events.json"), path("result.json"));
    done(&["predict", "--model", "mlp", "--gpu", "24GiB", "--events", &events, "--json", &result]);
    let mut session = Session::start(&["view", &events, &result]);
    session.sees("of 24 GiB");
    session.press("q");
    assert_eq!(session.ends(), Some(0));
    let said = refused(2, &["view", &result]);
    assert!(said.contains("a result without the events of its run") && said.contains("--events"), "{said}");
    assert!(refused(2, &["view", &events, SNAPSHOT]).contains("name one recording"));
    assert!(refused(2, &["view", &events, "--device", "0"]).contains("events.json"));
    let said = refused(2, &["view", &events]);
    assert!(said.contains("needs a terminal") && said.contains("vramlab report"), "{said}");
}

#[test]
fn what_cannot_be_looked_at_is_refused() {
    let said = refused(2, &["view", SNAPSHOT]);
    assert!(said.contains("needs a terminal") && said.contains("vramlab snapshot show"), "{said}");
    assert!(refused(2, &["view", SNAPSHOT, "--device", "9"]).contains("--device 9"));
    assert!(refused(2, &["view", "absent.pickle"]).contains("absent.pickle"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("empty.json");
    std::fs::write(&file, r#"{"format":"vramlab-events-1"}"#).unwrap();
    assert!(refused(2, &["view", &file.display().to_string()]).contains("no event was recorded"));
    std::fs::write(&file, "{").unwrap();
    assert!(refused(2, &["view", &file.display().to_string()]).contains("empty.json"));
}
