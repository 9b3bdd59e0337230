//! The README's commands and claims are true.

mod common;
use common::{done, run};

use lab::experiments::ALL;

fn readme() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap()
}

#[test]
fn every_program_of_the_articles_runs_by_the_command_that_is_listed() {
    let readme = readme();
    let section = readme.split("## The articles' programs").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| 00"));
    let commands: Vec<&str> = rows.filter_map(|row| row.split("`vramlab ").nth(1)?.split('`').next()).collect();
    assert!(commands.len() >= 14, "{commands:?}");
    for command in commands {
        let args: Vec<&str> = command.split_whitespace().chain(["--backend", "meta"]).collect();
        let stdout = done(&args);
        assert!(stdout.contains("allocated"), "{command}: {stdout}");
    }
    for article in ["000", "001", "002", "003"] {
        assert!(section.contains(&format!("| {article}")), "{article}");
    }
}

#[test]
fn every_claim_is_in_its_table() {
    let readme = readme();
    let table = readme.split("<!-- claims -->").nth(1).unwrap().split("<!-- /claims -->").next().unwrap();
    for claim in ALL.iter().flat_map(|experiment| experiment.claims()) {
        let row = table.lines().find(|line| line.starts_with(&format!("| {} |", claim.text)));
        let row = row.unwrap_or_else(|| panic!("not in the README: {}", claim.text));
        let articles = lab::claims::articles(claim.source);
        let source = if articles.is_empty() { claim.source.to_string() } else { articles.join(", ") };
        assert!(row.contains(&format!("| {source} |")), "{row}");
    }
}

#[test]
fn every_experiment_and_command_is_in_its_table() {
    let readme = readme();
    for experiment in ALL {
        let row = format!("| `{}` | {} |", experiment.name(), experiment.question());
        assert!(readme.contains(&row), "{row}");
    }
    let help = run(&["--help"]).stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A description that goes on in the next line is indented further.
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        let listed =
            readme.contains(&format!("| `vramlab {command}")) || ["help", "completions", "man"].contains(&command);
        assert!(listed, "{command}");
    }
}
