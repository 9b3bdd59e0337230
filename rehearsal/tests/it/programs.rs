//! Tests of the library with programs in C, which are compiled here: the library keeps what they rely on.

#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::library;

/// Test program in its own folder, which is removed when this is dropped.
struct Program {
    folder: PathBuf,
}

impl Program {
    fn compile() -> Self {
        Self::new("program.c")
    }

    /// Compiles a file of `tests/c`.
    fn new(source: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("rehearsal-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
        let mut command = Command::new("cc");
        command.args(["-O0", "-w", "-o"]).arg(folder.join("program")).arg(source).arg(library());
        let output = command.output().expect("cc is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { folder }
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Returns the path of a file in the program's folder.
    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("a path in UTF-8").to_string()
    }

    /// Returns a command that runs the program on a card of 1 GiB and capability 8.6.
    fn command(&self, words: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(self.folder.join("program"));
        let inherited = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("VRAMLAB_REHEARSAL_"));
        inherited.for_each(|name| {
            command.env_remove(name);
        });
        command.env("VRAMLAB_REHEARSAL_MEMORY", (1_u64 << 30).to_string());
        command.env("VRAMLAB_REHEARSAL_NAME", "NVIDIA Test 1").env("VRAMLAB_REHEARSAL_CAPABILITY", "8.6");
        command.args(words).envs(variables.iter().copied());
        command
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Anything that cannot be removed stays in cargo's folder for temporary files.
        let _left_over = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs the program, which must succeed, on a card of 1 GiB and capability 8.6.
fn run(program: &Program, words: &[&str], variables: &[(&str, &str)]) -> String {
    let output = program.command(words, variables).output().expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?} {variables:?}: {} {errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

fn promise(name: &str, variables: &[(&str, &str)]) {
    run(&Program::compile(), &[name], variables);
}

#[test]
fn memory_is_counted_in_pages_and_given_back() {
    promise("memory", &[]);
}

#[test]
fn memory_ends_where_the_card_does_and_addresses_never_do() {
    promise("exhaustion", &[]);
}

#[test]
fn pools_keep_memory_up_to_their_threshold() {
    promise("pools", &[]);
}

#[test]
fn virtual_memory_counts_what_is_made_not_what_is_reserved() {
    promise("virtual_memory", &[]);
}

#[test]
fn copies_are_true_until_a_kernel_runs() {
    promise("copies", &[]);
}

#[test]
fn a_layer_inside_the_program_shows_what_it_knows_and_hears_what_nobody_does() {
    promise("layer", &[]);
}

#[test]
fn events_are_complete_at_once_or_late() {
    let program = Program::compile();
    run(&program, &["events"], &[]);
    run(&program, &["events"], &[("VRAMLAB_REHEARSAL_LATE_EVENTS", "1")]);
}

#[test]
fn a_program_that_asks_about_a_stream_of_its_own_is_told_of() {
    let program = Program::compile();
    let log = program.folder().join("log");
    let variables = [("VRAMLAB_REHEARSAL_LOG", log.to_str().expect("a path in UTF-8"))];
    run(&program, &["copies"], &variables);
    assert!(!std::fs::read_to_string(&log).unwrap_or_default().contains("late_events"), "one stream, in its order");
    run(&program, &["events"], &variables);
    assert!(std::fs::read_to_string(&log).expect("a log").contains("late_events"));
}

#[test]
fn captures_join_streams_count_nodes_and_refuse_what_graphs_cannot_hold() {
    promise("capture", &[]);
}

#[test]
fn kernels_without_an_image_for_the_card_fail() {
    let program = Program::compile();
    for capability in ["7.5", "8.6", "9.0"] {
        run(&program, &["launches"], &[("VRAMLAB_REHEARSAL_CAPABILITY", capability)]);
    }
}

#[test]
fn cards_are_apart_and_nvml_tells_their_figures() {
    promise("cards", &[("VRAMLAB_REHEARSAL_CARDS", "2")]);
}

#[test]
fn both_releases_have_their_structures() {
    let program = Program::compile();
    run(&program, &["release", "12"], &[("VRAMLAB_REHEARSAL_CUDA", "12")]);
    run(&program, &["release", "12.8"], &[("VRAMLAB_REHEARSAL_CUDA", "12.8")]);
    run(&program, &["release", "13"], &[("VRAMLAB_REHEARSAL_CUDA", "13.0")]);
    run(&program, &["release", "13"], &[]);
}

#[test]
fn a_process_forked_from_one_that_used_the_card_cannot_use_it() {
    promise("forks", &[]);
}

#[test]
fn what_is_not_answered_is_logged_once() {
    let program = Program::compile();
    let log = program.file("log");
    run(&program, &["libraries"], &[("VRAMLAB_REHEARSAL_LOG", &log)]);
    run(&program, &["libraries"], &[("VRAMLAB_REHEARSAL_CUDNN_WORKSPACE", "5000000")]);
    let lines = std::fs::read_to_string(log).expect("a log");
    let count = |name: &str| lines.lines().filter(|line| line.contains(&format!("\"name\":\"{name}\""))).count();
    assert_eq!(count("cusolverDnSgetrf_bufferSize"), 1, "{lines}");
    // A product writes its results only to device memory.
    assert_eq!(count("cublasSgemm_v2"), 0, "{lines}");
}

#[test]
fn processes_share_a_card() {
    let program = Program::compile();
    let file = program.file("shared");
    let shared = [("VRAMLAB_REHEARSAL_SHARED", file.as_str())];
    run(&program, &["shares"], &shared);
    let start = |mib: &str| {
        let mut command = program.command(&["holds", mib], &shared);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        (child, line.trim().to_string())
    };
    let (mut first, left) = start("600");
    assert_eq!(left, "424");
    let refused = program.command(&["holds", "600"], &shared).output().expect("the program starts");
    assert!(!refused.status.success());
    let (mut second, left) = start("400");
    assert_eq!(left, "24");
    // The memory of a killed process is free again.
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    let (mut third, left) = start("600");
    assert_eq!(left, "24");
    for child in [&mut second, &mut third] {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
    // Without the shared file, each process has the card for itself.
    assert_eq!(run(&program, &["holds", "600"], &[]).trim(), "424");
}

#[test]
fn modules_that_are_loaded_at_once_are_told() {
    let program = Program::compile();
    for (mode, told) in [("EAGER", true), ("LAZY", false)] {
        let log = program.file(mode);
        run(&program, &["holds", "100"], &[("VRAMLAB_REHEARSAL_LOG", &log), ("CUDA_MODULE_LOADING", mode)]);
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert_eq!(log.contains(r#""event":"all_modules""#), told, "{mode}: {log}");
    }
}

#[test]
fn ranks_of_one_machine_hear_from_each_other() {
    let program = Program::new("ranks.c");
    let (file, log) = (program.file("shared"), program.file("log"));
    run(&program, &[], &[("VRAMLAB_REHEARSAL_SHARED", &file), ("VRAMLAB_REHEARSAL_LOG", &log)]);
    // A rank has the whole communicator and a part of it, and exchanged something alone with both others.
    let log = std::fs::read_to_string(log).expect("the log");
    let says = |event: &str, count: u32| log.contains(&format!(r#""event":"{event}","name":"{count}""#));
    for event in ["communicators", "peers"] {
        assert!(says(event, 2) && !says(event, 3), "{event}: {log}");
    }
    // Without a place to meet, each rank receives what it sent itself.
    run(&program, &[], &[]);
}

#[test]
fn ranks_that_were_not_started_send_what_the_others_do() {
    let program = Program::new("ranks.c");
    let (folder, log) = (program.file("meeting"), program.file("log"));
    let ran = ["VRAMLAB_REHEARSAL_RANKS", "VRAMLAB_REHEARSAL_STARTED", "VRAMLAB_REHEARSAL_LOG"];
    run(&program, &[], &[(ran[0], &folder), (ran[1], "0,2"), (ran[2], &log)]);
    let log = std::fs::read_to_string(log).expect("the log");
    assert!(log.contains("absent_rank") && log.contains("is not known"), "{log}");
    assert!(!log.contains("not_exact"), "nobody waited in vain: {log}");
}

#[test]
fn a_variable_that_makes_no_sense_ends_the_process() {
    let program = Program::compile();
    for (name, value) in [("MEMORY", "much"), ("CAPABILITY", "9.x"), ("CARDS", "17"), ("STARTED", "0,x")] {
        let name = format!("VRAMLAB_REHEARSAL_{name}");
        let output = program.command(&["memory"], &[(&name, value)]).output().expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(&name) && errors.contains(value), "{errors}");
    }
}

#[test]
fn the_driver_is_found_under_its_name() {
    // The launcher does the same: it makes a link in the run's own folder, which the loader searches first.
    let program = Program::compile();
    let folder = program.folder();
    std::os::unix::fs::symlink(library(), folder.join("libcuda.so.1")).expect("a link");
    let source = folder.join("opens.c");
    let text = "#include <dlfcn.h>\nint main(void) { void *d = dlopen(\"libcuda.so.1\", RTLD_NOW);\n\
                return !(d && dlsym(d, \"cuInit\") && dlsym(d, \"cuInit\") == dlsym(RTLD_DEFAULT, \"cuInit\")); }\n";
    std::fs::write(&source, text).expect("a file");
    let binary = folder.join("opens");
    let built = Command::new("cc").arg("-D_GNU_SOURCE").arg(&source).arg("-o").arg(&binary).arg("-ldl").status();
    assert!(built.expect("cc is there").success());
    let mut command = Command::new(&binary);
    let status = command.env("LD_PRELOAD", library()).env("LD_LIBRARY_PATH", &folder).status();
    assert!(status.expect("the program starts").success());
}
