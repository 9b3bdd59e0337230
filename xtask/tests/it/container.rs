//! `Containerfile` names what there is: packages, features, files, the compiler's release, and where the program looks for its library.

use std::fs;

use xtask::files::{member_manifests, workspace_root};

fn read(name: &str) -> String {
    fs::read_to_string(workspace_root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The instructions without comments; one that goes on in the next line is one.
fn instructions() -> Vec<String> {
    let lines = read("Containerfile").replace("\\\n", " ");
    lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(String::from).collect()
}

/// Words behind each of the instructions that begin so.
fn words(of: &[String], start: &str) -> Vec<Vec<String>> {
    let found = of.iter().filter_map(|line| line.strip_prefix(start));
    found.map(|rest| rest.split_whitespace().map(String::from).collect()).collect()
}

/// The value of a key at the beginning of a line of a manifest.
fn value<'a>(manifest: &'a str, key: &str) -> &'a str {
    let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {key}")).trim().trim_matches('"')
}

#[test]
fn the_compiler_is_the_one_that_the_workspace_needs() {
    let (workspace, file) = (read("Cargo.toml"), instructions());
    let release = value(&workspace, "rust-version");
    assert_eq!(words(&file, "FROM ")[0][0], format!("docker.io/library/rust:{release}-bookworm"));
    assert_eq!(words(&file, "ENV ")[0], [format!("RUSTUP_TOOLCHAIN={release}.0")]);
}

#[test]
fn the_build_names_packages_and_features_that_there_are() {
    let file = instructions();
    let build = words(&file, "RUN ").into_iter().find(|words| words[0] == "cargo").unwrap();
    let after = |flag: &str| -> Vec<&str> {
        let flags = build.windows(2).filter(|pair| pair[0] == flag);
        flags.flat_map(|pair| pair[1].split(',')).collect()
    };
    let manifests = member_manifests(&workspace_root()).unwrap();
    for package in after("-p") {
        assert!(manifests.iter().any(|one| value(&one.text, "name") == package), "{package}");
    }
    let cli = read("cli/Cargo.toml");
    let features = cli.split("[features]\n").nth(1).unwrap().split("\n[").next().unwrap();
    assert_eq!((after("-p").len(), after("--features").len()), (2, 4));
    for feature in after("--features") {
        let named = feature.strip_prefix("vramlab-cli/").unwrap();
        assert!(features.lines().any(|line| line.starts_with(&format!("{named} ="))), "{feature}");
    }
}

#[test]
fn what_is_copied_is_built_and_found() {
    let file = instructions();
    let copied = words(&file, "COPY --from=build ");
    let to = |built: &str| &copied.iter().find(|words| words[0] == built).unwrap_or_else(|| panic!("{built}"))[1];
    assert!(read("cli/Cargo.toml").contains("[[bin]]\nname = \"vramlab\"\n"));
    assert_eq!(to("/src/target/release/vramlab"), "/usr/local/bin/");
    // The folder is `../lib/vramlab` of the program's.
    let search = read("lab/src/rehearse/library.rs");
    assert!(search.contains("NAME: &str = \"libvramlab_rehearsal.so\"") && search.contains("\"../lib/vramlab\""));
    assert_eq!(to("/src/target/release/libvramlab_rehearsal.so"), "/usr/local/lib/vramlab/");
    let licences = copied.iter().find(|words| words.len() == 3).unwrap();
    for licence in &licences[..2] {
        assert!(workspace_root().join(licence.strip_prefix("/src/").unwrap()).is_file(), "{licence}");
    }
    assert_eq!(words(&file, "USER "), [["vramlab"]]);
    assert!(read(".dockerignore").lines().any(|line| line == "target"));
}
