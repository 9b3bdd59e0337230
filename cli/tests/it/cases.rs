//! Bad input, drawn at random from a fixed seed: hostile values for every flag, damaged files of every format, outputs that fail.
//!
//! The program must always end with a documented exit code and a message, in bounded time and memory, without a panic and without control
//! characters for the terminal. `CASES=20000 cargo test -p vramlab-cli --test it -- --ignored cases` sets the number of cases.
#![cfg(unix)]

mod damage;
mod random;
mod seeds;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use damage::{HOSTILE, damaged};
use random::Random;
use seeds::{Flag, Kind, Seeds, Subcommand, companions};

/// Number of cases of a usual run, and of a long run without `CASES`.
const FEW: usize = 250;
const MANY: usize = 2000;
/// Limits of one case: CPU seconds, seconds until it counts as hanging (on a loaded machine), KiB of address space.
const CPU_SECONDS: u32 = 30;
/// Limits of a run whose flag sets its duration. To reach one is not a failure.
const CPU_SECONDS_OF_LONG: u32 = 1;
const WAIT: Duration = Duration::from_secs(180);
const ADDRESSES_KIB: u32 = 6 << 20;
/// Signal for a process that has used up its CPU seconds.
const SIGKILL: i32 = 9;

#[test]
fn a_few_bad_inputs() {
    run(FEW, 1);
}

#[test]
#[ignore = "takes minutes"]
fn many_bad_inputs() {
    run(std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(MANY), 2);
}

/// The files are valid before they are damaged: otherwise the cases would test little.
#[test]
fn what_is_not_damaged_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let seeds = Seeds::make(directory.path());
    let own = directory.path().join("own");
    let mut refused = Vec::new();
    let mut try_one = |make: &dyn Fn() -> Case| {
        fs::create_dir(&own).unwrap();
        let case = make();
        let code = tried(&case, &own);
        if code != Ok(0) {
            let said = fs::read_to_string(own.join("stderr")).unwrap_or_default();
            refused.push(format!("{:?}: {code:?}\n    {said}", case.words));
        }
        fs::remove_dir_all(&own).unwrap();
    };
    for kind in &seeds.kinds {
        kind.readers.iter().for_each(|reader| try_one(&|| reading(kind, &kind.whole, reader, &own)));
    }
    // One takes long, one needs a script (tested in `rehearse.rs`), and one needs a terminal (tested in `view.rs`).
    let tried_elsewhere = [["bench"], ["rehearse"], ["view"]];
    for command in seeds.commands.iter().filter(|command| tried_elsewhere.iter().all(|words| command.words != words)) {
        try_one(&|| Case { words: seeds.base(&command.words, &own), file: false, long: false, output: None });
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

struct Case {
    words: Vec<String>,
    /// True if the bad input is a small file: reading it must not take all memory.
    file: bool,
    /// True if the input may request a very large number of steps.
    long: bool,
    /// Path that must not exist after a failure.
    output: Option<PathBuf>,
}

/// Draws and tries this many cases; fails with a list of all failures.
fn run(count: usize, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let seeds = Seeds::make(directory.path());
    let next = AtomicUsize::new(0);
    let wrong: Mutex<Vec<String>> = Mutex::default();
    let codes: Mutex<BTreeMap<i32, usize>> = Mutex::default();
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= count {
                break;
            }
            let own = directory.path().join(number.to_string());
            fs::create_dir(&own).unwrap();
            let case = drawn(&mut Random::new((seed << 32) | number as u64), &seeds, &own);
            match tried(&case, &own) {
                Ok(code) => *codes.lock().unwrap().entry(code).or_default() += 1,
                Err(problem) => {
                    wrong.lock().unwrap().push(format!("case {number}: {problem}\n    vramlab {:?}", case.words));
                }
            }
            fs::remove_dir_all(&own).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
    let codes = codes.into_inner().unwrap();
    println!("{count} cases, by exit code: {codes:?}");
    assert!([0, 2].iter().all(|code| codes.contains_key(code)), "the cases are too much alike: {codes:?}");
}

fn drawn(random: &mut Random, seeds: &Seeds, own: &Path) -> Case {
    match random.below(10) {
        0..4 => flag(random, seeds, own),
        4..9 => file(random, seeds, own),
        _ => output(random, seeds, own),
    }
}

/// Draws a flag of any command with a hostile value.
fn flag(random: &mut Random, seeds: &Seeds, own: &Path) -> Case {
    let Subcommand { words, flags } = random.pick(&seeds.commands);
    let mut words = seeds.base(words, own);
    let mut long = false;
    if let Some(Flag { name, values }) = (!flags.is_empty()).then(|| random.pick(flags)) {
        let value = random.pick(&HOSTILE).to_string();
        long = ["--steps", "--accumulate"].contains(&name.as_str());
        match values {
            0 => words.push(name.clone()),
            1 => words.push(format!("{name}={value}")),
            _ => words.extend([
                name.clone(),
                random.pick(&["batch", "layers", "lr", "x"]).to_string(),
                value,
                "2".into(),
            ]),
        }
    }
    Case { words, file: false, long, output: None }
}

/// Draws a damaged file of any format.
fn file(random: &mut Random, seeds: &Seeds, own: &Path) -> Case {
    let kind = random.pick(&seeds.kinds);
    let contents = damaged(&kind.whole, random);
    let reader = random.pick(&kind.readers);
    reading(kind, &contents, reader, own)
}

/// Draws a command that reads such a file with these contents.
fn reading(kind: &Kind, contents: &[u8], reader: &[&str], own: &Path) -> Case {
    for (other, contents) in companions() {
        fs::write(own.join(other), contents).unwrap();
    }
    let path = own.join(kind.name);
    fs::write(&path, contents).unwrap();
    let (path, out) = (path.display().to_string(), own.join("out").display().to_string());
    let words = reader.iter().map(|word| word.replace("FILE", &path).replace("OUT", &out)).collect();
    Case { words, file: true, long: false, output: Some(own.join("out.html")) }
}

/// Draws an output path that cannot be written.
fn output(random: &mut Random, seeds: &Seeds, own: &Path) -> Case {
    let mut words = seeds.base(&random.pick(&seeds.commands).words, own);
    let flag =
        random.pick(&["--json", "--html", "--events", "--snapshot", "--save", "--export-csv", "--export-trace", "-o"]);
    let folder = own.display().to_string();
    let below = format!("{folder}/absent/x.json");
    words.extend([flag.to_string(), random.pick(&["/dev/full", &folder, &below, "", "/proc/x.json"]).to_string()]);
    Case { words, file: false, long: false, output: None }
}

/// Runs a case. Returns the exit code if the program behaved as required.
fn tried(case: &Case, own: &Path) -> Result<i32, String> {
    let (stdout, stderr) = (own.join("stdout"), own.join("stderr"));
    let seconds = if case.long { CPU_SECONDS_OF_LONG } else { CPU_SECONDS };
    let limits = format!("ulimit -v {ADDRESSES_KIB}; ulimit -t {seconds}; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &limits, env!("CARGO_BIN_EXE_vramlab")])
        .args(&case.words)
        .env_remove("PYTORCH_ALLOC_CONF")
        .env("VRAMLAB_RUNTIME_DIR", own)
        .env("NO_COLOR", "1")
        .env("RAYON_NUM_THREADS", "2")
        .current_dir(own)
        .stdin(Stdio::null())
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap())
        .spawn()
        .map_err(|error| error.to_string())?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if start.elapsed() > WAIT => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("does not end".into());
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let (printed, said) = (read(&stdout), read(&stderr));
    let short: String = said.chars().take(300).collect();
    if said.contains("panicked at") {
        return Err(format!("panic: {short}"));
    }
    let code = match status.code() {
        Some(code @ (0 | 1 | 2 | 3 | 130)) => code,
        None if case.long && status.signal() == Some(SIGKILL) => return Ok(128 + SIGKILL),
        _ => return Err(format!("{status}: {short}")),
    };
    if code != 0 && said.trim().is_empty() {
        return Err(format!("code {code} and no message"));
    }
    if case.file && said.contains("out of host memory") {
        return Err(format!("takes all memory: {short}"));
    }
    if let Some(c) = printed.chars().chain(said.chars()).find(|c| acts(*c)) {
        return Err(format!("prints {c:?}: {short:?}"));
    }
    match &case.output {
        Some(path) if !status.success() && path.exists() => Err(format!("{status} and {} is there", path.display())),
        _ => Ok(code),
    }
}

/// True for a control character that a terminal obeys.
fn acts(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
