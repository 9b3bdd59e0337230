//! The documents are true: their commands run, their sample outputs are what the program prints, their claims are the program's, their links lead
//! somewhere.

use crate::markdown;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::common::{done, run, vramlab};
use crate::markdown::{Block, anchors, blocks, links};
use lab::experiments::ALL;

/// Maximum number of lines of the README.
const LINES_OF_README: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Paths from the root of the repository.
fn documents() -> Vec<String> {
    let fixed = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benches/README.md"];
    let names = std::fs::read_dir(root().join("docs")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut docs: Vec<String> = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    docs.sort();
    assert!(docs.len() >= 9, "{docs:?}");
    fixed.into_iter().map(String::from).chain(docs).collect()
}

/// Makes a user's folder with the files that the documents name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    std::fs::create_dir_all(folder.path().join("examples/models")).unwrap();
    for entry in std::fs::read_dir(root().join("examples/models")).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap().to_str().unwrap().to_string();
        write(&format!("examples/models/{name}"), &std::fs::read(from).unwrap());
    }
    write("run.toml", b"model = \"mlp\"\nbatch = 8\n");
    write("model.toml", read("examples/models/simple-cnn.toml").as_bytes());
    write(
        "config.json",
        br#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
            "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 128256,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
            "transformers_version": "4.51.3"}"#,
    );
    write(
        "train.log",
        b"step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.53 GiB of which 1.28 GiB is free.\n",
    );
    let recorded = std::fs::File::open(root().join("lab/traces/tests/golden/recordings/unet_oom.pickle.gz")).unwrap();
    let mut snapshot = Vec::new();
    flate2::read::GzDecoder::new(recorded).read_to_end(&mut snapshot).unwrap();
    write("snapshot.pickle", &snapshot);
    folder
}

/// Runs a block's commands and returns their output. Each must end with exit code 0 or 1: an answer, not an error.
fn printed(name: &str, block: &Block, folder: &Path) -> String {
    let mut out = String::new();
    for command in block.commands() {
        let at = format!("{name}:{}: {command}", block.line);
        let words = command.strip_prefix("vramlab ");
        let words = words.unwrap_or_else(|| panic!("{at}: not a command of the program, and not marked `not-run`"));
        assert!(
            !words.contains(['"', '\'', '|', '$', '<', '>', '&', ';']),
            "{at}: needs a shell, which this test has not"
        );
        let ran = vramlab().current_dir(folder).args(words.split_whitespace()).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(
            matches!(ran.status.code(), Some(0 | 1)) && !stderr.contains("panicked"),
            "{at}: {:?}: {stderr}",
            ran.status
        );
        out += &String::from_utf8(ran.stdout).unwrap();
    }
    out
}

/// Checks that every line of the sample is in the output, in this order. A line with only `…` stands for any lines.
fn is_shown(name: &str, picture: &Block, printed: &str) {
    let mut lines = printed.lines().map(str::trim_end);
    for line in picture.text.lines().filter(|line| line.trim() != "…") {
        assert!(lines.any(|is| is == line.trim_end()), "{name}:{}: not printed, or not there: {line}", picture.line);
    }
}

#[test]
fn every_command_runs_and_every_picture_is_what_it_prints() {
    let (mut ran, mut pictures, mut not_run) = (0, 0, Vec::new());
    for name in documents() {
        let folder = folder();
        let mut last: Option<String> = None;
        for block in blocks(&read(&name)) {
            match (block.language.as_str(), &block.not_run) {
                ("sh" | "yaml", Some(reason)) => {
                    not_run.push(format!("{name}:{}: {reason}", block.line));
                    last = None;
                }
                ("sh" | "yaml", None) => {
                    ran += block.commands().count();
                    last = Some(printed(&name, &block, folder.path()));
                }
                ("text", _) => {
                    if let Some(printed) = &last {
                        is_shown(&name, &block, printed);
                        pictures += 1;
                    }
                }
                _ => {}
            }
        }
    }
    println!("{ran} commands ran, {pictures} pictures compared; not run:\n{}", not_run.join("\n"));
    assert!(ran >= 30 && pictures >= 3, "{ran} commands, {pictures} pictures");
    assert!(not_run.iter().all(|entry| !entry.trim_end().ends_with(':')), "without a reason: {not_run:?}");
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for name in documents() {
        let text = read(&name);
        let here = root().join(&name);
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { here.clone() } else { here.parent().unwrap().join(path) };
            assert!(target.exists(), "{name}: {link}");
            if let Some(anchor) = anchor {
                let anchors = anchors(&std::fs::read_to_string(&target).unwrap());
                assert!(anchors.iter().any(|known| known == anchor), "{name}: {link}: no such heading");
            }
            followed += 1;
        }
    }
    assert!(followed >= 50, "{followed}");
}

#[test]
fn the_readme_is_short_and_leads_to_every_document() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= LINES_OF_README, "{} lines", readme.lines().count());
    let links = links(&readme);
    for name in documents().into_iter().filter(|name| name != "README.md") {
        assert!(links.iter().any(|link| link.split('#').next() == Some(name.as_str())), "no link to {name}");
    }
}

#[test]
fn every_program_of_the_articles_runs_by_the_command_that_is_listed() {
    let articles = read("docs/articles.md");
    let rows = articles.lines().filter(|line| line.starts_with("| 00"));
    let commands: Vec<&str> = rows.filter_map(|row| row.split("`vramlab ").nth(1)?.split('`').next()).collect();
    assert!(commands.len() >= 14, "{commands:?}");
    for command in commands {
        let args: Vec<&str> = command.split_whitespace().chain(["--backend", "meta", "--full"]).collect();
        let stdout = done(&args);
        assert!(stdout.contains("allocated"), "{command}: {stdout}");
    }
    for article in ["000", "001", "002", "003"] {
        assert!(articles.contains(&format!("| {article}, ")), "{article}");
    }
}

/// Rows of the table of claims: claim, source, verdict, number, condition.
fn claimed() -> BTreeMap<String, Vec<String>> {
    let text = read("docs/claims.md");
    let table = text.split("<!-- claims -->").nth(1).unwrap().split("<!-- /claims -->").next().unwrap();
    table.lines().skip(3).map(markdown::cells).map(|cells| (cells[0].clone(), cells)).collect()
}

#[test]
fn every_claim_is_in_its_table() {
    let rows = claimed();
    let claims: Vec<_> = ALL.iter().flat_map(|experiment| experiment.claims()).collect();
    for claim in &claims {
        let row = rows.get(claim.text).unwrap_or_else(|| panic!("not in docs/claims.md: {}", claim.text));
        let articles = lab::claims::articles(claim.source);
        let source = if articles.is_empty() { claim.source.to_string() } else { articles.join(", ") };
        assert_eq!(row[1], source, "{row:?}");
    }
    assert!(rows.keys().all(|row| claims.iter().any(|claim| claim.text == row)), "a claim that nothing makes");
    let said = format!("of the {} claims that", rows.len());
    assert!(read("README.md").contains(&said), "the README does not say: {said}");
}

/// Turns `128: 111149056 B` into `128: 106 MiB`.
fn in_mib(number: &str) -> String {
    let words: Vec<&str> = number.split(' ').collect();
    let mut out: Vec<String> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let next = words.get(index + 1).copied().unwrap_or("");
        match (word.parse::<u64>(), next.trim_end_matches(';') == "B") {
            (Ok(bytes), true) => {
                let mib = format!("{:.2}", bytes as f64 / f64::from(1 << 20));
                out.push(mib.trim_end_matches('0').trim_end_matches('.').to_string());
            }
            _ if word.trim_end_matches(';') == "B" => out.push(word.replace('B', "MiB")),
            _ => out.push((*word).to_string()),
        }
    }
    out.join(" ")
}

#[test]
fn the_readmes_claims_are_those_of_the_table() {
    let rows = claimed();
    let readme = read("README.md");
    let section = readme.split("## Six claims").nth(1).unwrap().split("\n## ").next().unwrap();
    let shown: Vec<Vec<String>> =
        section.lines().filter(|line| line.starts_with("| ")).skip(1).map(markdown::cells).collect();
    assert_eq!(shown.len(), 6, "{shown:?}");
    for row in shown {
        let of = rows.get(&row[0]).unwrap_or_else(|| panic!("not in docs/claims.md: {}", row[0]));
        assert_eq!((&row[1], &row[2]), (&of[2], &in_mib(&of[3])), "{}", row[0]);
    }
}

#[test]
fn every_experiment_and_command_is_in_its_table() {
    let guide = read("docs/guide.md");
    for experiment in ALL {
        let row = format!("| `{}` | {} |", experiment.name(), experiment.question());
        assert!(guide.contains(&row), "{row}");
    }
    let help = run(&["--help"]).stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // The continuation of a description is indented further.
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        let is_explained = guide.contains(&format!("| `vramlab {command}"));
        assert_ne!(is_explained, ["help", "completions", "man"].contains(&command), "{command}");
    }
}
