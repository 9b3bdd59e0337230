//! Tests of scripts under `VRAMLAB_REHEARSAL_FILES`: they read back what they write, and the original files stay unchanged.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::library;

/// Project of a script, with a folder for the copies, and one that is not protected.
struct Project {
    root: PathBuf,
}

impl Project {
    fn make() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("rehearsal-files-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let project = Self { root };
        for folder in ["data", "out/checkpoint-1", "past/deep", "other/deep", "kept/gone"] {
            fs::create_dir_all(project.folder().join(folder)).expect("a folder");
        }
        for folder in ["copies", "open"] {
            fs::create_dir_all(project.root.join(folder)).expect("a folder");
        }
        for (name, contents) in [
            ("old.txt", "old"),
            ("untouched.txt", "untouched"),
            ("data/a.bin", "aaaa"),
            ("data/b.bin", "bbbb"),
            ("out/checkpoint-1/model.bin", "one"),
            ("another.txt", "another"),
            ("past/deep/model.bin", "past"),
            ("other/deep/model.bin", "other"),
            ("kept/gone.bin", "gone"),
            ("kept/gone/model.bin", "gone"),
            ("kept/stays.bin", "stays"),
            ("read-only.txt", "read only"),
            ("attributes.txt", "attributes"),
        ] {
            fs::write(project.folder().join(name), contents).expect("a file");
        }
        fs::set_permissions(project.folder().join("read-only.txt"), fs::Permissions::from_mode(0o444)).expect("a mode");
        fs::set_permissions(project.folder().join("another.txt"), fs::Permissions::from_mode(0o644)).expect("a mode");
        fs::write(project.folder().join("appended.bin"), vec![b'.'; 4 << 20]).expect("a file");
        let sparse = fs::File::create(project.folder().join("sparse.bin")).expect("a file");
        sparse.set_len(1 << 30).expect("a length");
        symlink("data", project.folder().join("link")).expect("a link");
        project
    }

    fn folder(&self) -> PathBuf {
        self.root.join("project")
    }

    /// Gives a file an extended attribute. False if this file system has none.
    fn gives_attribute(&self) -> bool {
        let path = CString::new(self.folder().join("attributes.txt").into_os_string().into_encoded_bytes());
        let (path, value) = (path.expect("no zero"), b"kept");
        // SAFETY: both texts end with a zero, and the value has the length that is given.
        let set =
            unsafe { libc::setxattr(path.as_ptr(), c"user.before".as_ptr(), value.as_ptr().cast(), value.len(), 0) };
        set == 0
    }

    /// Runs a command in the project, with its files protected.
    fn run(&self, command: &mut Command) -> Output {
        command.current_dir(self.folder()).env("LD_PRELOAD", library());
        command.env("VRAMLAB_REHEARSAL_FILES", self.root.join("copies"));
        command.env("VRAMLAB_REHEARSAL_FILES_OPEN", self.root.join("open")).env("OPEN_FOLDER", self.root.join("open"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.output().expect("it starts")
    }

    /// Returns the path of the copy of a file of the project.
    fn copy(&self, name: &str) -> PathBuf {
        let copies = self.root.join("copies/copies");
        copies.join(self.folder().strip_prefix("/").expect("an absolute path")).join(name)
    }

    /// Returns everything below the project, by path: kind and contents, mode, and time of the last change.
    fn state(&self) -> BTreeMap<PathBuf, (String, u32, std::time::SystemTime)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.folder()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let metadata = fs::symlink_metadata(&path).expect("a file");
                let contents = if metadata.is_dir() {
                    folders.push(path.clone());
                    "folder".to_string()
                } else if metadata.is_symlink() {
                    format!("link to {}", fs::read_link(&path).expect("a link").display())
                } else if metadata.len() > 1 << 20 {
                    format!("{} bytes", metadata.len())
                } else {
                    fs::read_to_string(&path).expect("a text")
                };
                let state = (contents, metadata.permissions().mode(), metadata.modified().expect("a time"));
                found.insert(path, state);
            }
        }
        found
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        // Anything that cannot be removed stays in cargo's folder for temporary files.
        let _left_over = fs::remove_dir_all(&self.root);
    }
}

fn succeeded(output: &Output) -> String {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    text.into_owned()
}

#[test]
fn a_script_reads_back_what_it_writes_and_changes_nothing() {
    let project = Project::make();
    let before = project.state();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files.py");
    let mut command = Command::new("python3");
    if project.gives_attribute() {
        command.env("HAS_ATTRIBUTES", "1");
    }
    let text = succeeded(&project.run(command.arg(script)));
    assert_eq!(text.matches("passed").count(), 27, "{text}");
    assert_eq!(project.state(), before, "what existed is unchanged");
    let copied = |name: &str| fs::read_to_string(project.copy(name)).expect("a copy");
    assert_eq!(copied("old.txt"), "new");
    assert_eq!(copied("out/best/model.bin"), "two");
    assert_eq!(copied("result.json"), "{\"done\": true}");
    assert_eq!(fs::read_to_string(project.root.join("open/cached")).expect("not protected"), "kept");
    let listings = fs::read_dir(project.root.join("copies/listings")).expect("a folder").count();
    assert!(listings < 8, "{listings} listings are left over");
}

#[test]
fn without_the_variable_files_are_written() {
    let project = Project::make();
    let mut command = Command::new("sh");
    command.args(["-c", "echo new > old.txt && mv old.txt moved.txt && mkdir made && rm data/a.bin"]);
    let output = command.current_dir(project.folder()).env("LD_PRELOAD", library()).output().expect("it starts");
    succeeded(&output);
    assert_eq!(fs::read_to_string(project.folder().join("moved.txt")).expect("it was moved"), "new\n");
    assert!(project.folder().join("made").is_dir() && !project.folder().join("data/a.bin").exists());
}

#[test]
fn programs_in_c_are_held_back_as_well() {
    let project = Project::make();
    let before = project.state();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/files.c");
    let program = project.root.join("program");
    let mut command = Command::new("cc");
    let output = command.args(["-O0", "-w", "-o"]).arg(&program).arg(source).output().expect("cc is there");
    succeeded(&output);
    succeeded(&project.run(&mut Command::new(&program)));
    assert_eq!(project.state(), before, "what existed is unchanged");
    assert_eq!(fs::read_to_string(project.copy("stream.txt")).expect("a copy"), "stream");
}

#[test]
fn an_allocator_that_opens_files_while_it_starts_gets_them() {
    let project = Project::make();
    let before = project.state();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/allocator.c");
    let allocator = project.root.join("allocator.so");
    let mut command = Command::new("cc");
    command.args(["-O1", "-w", "-shared", "-fPIC", "-o"]).arg(&allocator).arg(source);
    succeeded(&command.output().expect("cc is there"));
    let script =
        "echo new > old.txt && rm data/a.bin && test \"$(cat old.txt)\" = new && test ! -e data/a.bin && echo passed";
    let mut command = Command::new("timeout");
    command.args(["20", "env"]).arg(format!("LD_PRELOAD={}:{}", library().display(), allocator.display()));
    assert_eq!(succeeded(&project.run(command.args(["sh", "-c", script]))), "passed\n");
    assert_eq!(project.state(), before, "what existed is unchanged");
}
