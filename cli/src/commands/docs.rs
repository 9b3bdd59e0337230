//! `vramlab completions` and `vramlab man`: made from the definition of the command line.

use std::path::Path;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgGroup, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use lab::{cards, experiments};

use crate::args::{self, ManArgs};
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Exit codes, for a manual page.
const EXIT: [(&str, &str); 5] = [
    ("0", "Everything was done, whatever the answer."),
    ("1", "It does not fit, a check failed, or a prediction proved wrong."),
    ("2", "Bad usage or input; nothing was written."),
    (
        "3",
        "The device failed, is absent, or ran out of memory without a limit having been given; the host ran out of memory.",
    ),
    ("130", "Stopped by Ctrl-C; what was measured until then was delivered."),
];
/// Commands that the help leaves out, because it shows ten, and that shells offer all the same.
const ALSO: [&str; 5] = ["bench", "completions", "man", "mcp", "view"];
/// How every command writes files.
const OUTPUTS: &str = "Files that a command writes appear whole or not at all; \"-\" is standard output.";
/// Further files of single commands: command, file, purpose.
const FILES: [(&[&str], &str, &str); 4] = [
    (
        &["train", "predict", "ask", "fit", "check"],
        "FILE.toml",
        "Flags for --config: their names as keys. What is typed wins.",
    ),
    (
        &["train", "watch"],
        "$VRAMLAB_RUNTIME_DIR, $XDG_RUNTIME_DIR/vramlab, or vramlab-UID among the temporary files",
        "What running trainings say of themselves, and watch reads.",
    ),
    (
        &["check"],
        "FILE of --baseline",
        "What runs took, as --update writes it; to be kept beside the code, as memory.lock.json.",
    ),
    (
        &["rehearse"],
        "libvramlab_rehearsal.so",
        "Stands in for CUDA's libraries: beside the program, in ../lib, or where $VRAMLAB_REHEARSAL_LIBRARY says.",
    ),
];

/// Prints the completion script of a shell.
pub(super) fn completions(shell: clap_complete::Shell, ui: &Ui) -> Result<Code> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offering(shown(&args::whole(false))), "vramlab", &mut script);
    if shell == clap_complete::Shell::Fish {
        script.extend(experiments_in_fish().bytes());
    }
    ui.print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Done)
}

/// Returns the command line without what nobody should type: earlier names, and flags that the program gives itself.
fn shown(root: &Command) -> Command {
    let visible =
        |command: &Command| -> Vec<Arg> { command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned().collect() };
    let kept = args::SHOWN.into_iter().chain(ALSO).filter_map(|name| {
        let sub = root.find_subcommand(name)?;
        let (about, args) = (sub.get_about().cloned().unwrap_or_default(), visible(sub));
        let whole = |group: &&ArgGroup| group.get_args().all(|id| args.iter().any(|arg| arg.get_id() == id));
        let groups: Vec<ArgGroup> = sub.get_groups().filter(whole).cloned().collect();
        Some(Command::new(name).about(about).args(args).groups(groups))
    });
    let program = Command::new("vramlab").version(env!("VRAMLAB_VERSION")).disable_help_subcommand(true);
    program.args(visible(root)).subcommands(kept)
}

/// Returns the command line as shells should offer it: with the names of experiments and cards, which other values may accompany.
fn offering(command: Command) -> Command {
    let questions = experiments::ALL.iter().map(|one| PossibleValue::new(one.name()).help(one.question()));
    let questions: Vec<PossibleValue> = questions.chain([PossibleValue::new("all").help("all of them")]).collect();
    command.mut_subcommands(move |command| {
        let is_run = command.get_name() == "ask";
        command.mut_args(|arg| match arg.get_id().as_str() {
            "gpu" => arg.value_parser(PossibleValuesParser::new(known_cards())),
            "names" if is_run => arg.value_parser(PossibleValuesParser::new(questions.clone())),
            _ => arg,
        })
    })
}

/// Completes words that are not options, which clap_complete leaves out of its script for fish.
fn experiments_in_fish() -> String {
    let quoted = |text: &str| text.replace(['\\', '\''], "");
    let lines = experiments::ALL.iter().map(|one| {
        let (name, question) = (one.name(), quoted(one.question()));
        format!("complete -c vramlab -n \"__fish_vramlab_using_subcommand ask\" -f -a '{name}' -d '{question}'\n")
    });
    lines.collect()
}

fn known_cards() -> impl Iterator<Item = PossibleValue> {
    cards::ALL.iter().map(|card| PossibleValue::new(card.name).help(card.title))
}

/// Prints a manual page, the program's or a command's; or writes all pages to a folder.
///
/// # Errors
/// An unknown command; a folder or standard output that cannot be written.
pub(super) fn man(asked: &ManArgs, ui: &Ui) -> Result<Code> {
    let mut root = args::whole(false);
    root.build();
    if let Some(folder) = &asked.write {
        write_all(&root, folder)?;
        return Ok(Code::Done);
    }
    let mut command = &root;
    for name in &asked.command {
        let known: Vec<&str> = subcommands(command).map(Command::get_name).collect();
        command = subcommands(command)
            .find(|sub| sub.get_name() == name || sub.get_all_aliases().any(|alias| alias == name))
            .ok_or_else(|| {
                let known =
                    if known.is_empty() { "it has none".into() } else { format!("known: {}", known.join(", ")) };
                Failure::usage(format!("no command {name:?} of {}; {known}", command.get_name()))
            })?;
    }
    ui.print(&page(command)?)?;
    Ok(Code::Done)
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| sub.get_name() != "help")
}

/// Writes the page of a command and those of its subcommands.
fn write_all(command: &Command, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::usage(format!("--write {}: {error}", folder.display())))?;
    let page = page(command)?;
    output::fill(&folder.join(format!("{}.1", name(command))), &mut |out| out.write_all(page.as_bytes()))?;
    subcommands(command).try_for_each(|sub| write_all(sub, folder))
}

/// Returns the name of a page: `vramlab-snapshot-show`.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-")
}

/// Makes a manual page: clap's content, then examples, exit codes and files.
fn page(command: &Command) -> Result<String> {
    let mut text = Vec::new();
    render(command, &mut text).map_err(|error| Failure::new(Code::Usage, error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn render(command: &Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    let name = name(command);
    let source = concat!("vramlab ", env!("VRAMLAB_VERSION"));
    let man = Man::new(command.clone()).title(name.to_uppercase()).source(source);
    man.render_title(text)?;
    man.render_name_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(text)?;
    }
    if subcommands(command).next().is_some() {
        man.render_subcommands_section(text)?;
    }
    let mut roff = Roff::new();
    examples(&mut roff, command);
    section(&mut roff, "EXIT STATUS", &EXIT);
    let own = FILES.iter().filter(|(of, ..)| of.contains(&command.get_name())).map(|(_, file, what)| (*file, *what));
    section(&mut roff, "FILES", &own.collect::<Vec<_>>());
    roff.text([roman(OUTPUTS)]);
    see_also(&mut roff, command);
    roff.to_writer(text)
}

/// Adds the examples of the help: a line with the purpose, then the command.
fn examples(roff: &mut Roff, command: &Command) {
    let Some(help) = command.get_after_help() else { return };
    roff.control("SH", ["EXAMPLES"]);
    for line in help.to_string().lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("Example: ") {
            Some(what) => {
                roff.control("PP", []);
                let end = if what.ends_with('?') { "" } else { ":" };
                roff.text([roman(format!("{}{end}", capital(what)))]);
            }
            None => {
                roff.control("RS", ["4"]);
                roff.text([bold(line)]);
                roff.control("RE", []);
            }
        }
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn section(roff: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (name, what) in entries {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*what)]);
    }
    if !entries.is_empty() {
        roff.control("PP", []);
    }
}

/// Adds links to the pages above and below.
fn see_also(roff: &mut Roff, command: &Command) {
    let own = name(command);
    let above = own.rsplit_once('-').map(|(above, _)| above.to_string());
    let names: Vec<String> = above.into_iter().chain(subcommands(command).map(name)).collect();
    roff.control("SH", ["SEE ALSO"]);
    let mut line: Vec<Inline> = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let end = if i + 1 < names.len() { "(1), " } else { "(1)" };
        line.extend([italic(name.as_str()), roman(end)]);
    }
    roff.text(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_are_offered_what_there_is() {
        let mut command = offering(shown(&args::whole(false)));
        command.build();
        let offered = |of: &str, id: &str| -> Vec<String> {
            let arg = command.find_subcommand(of).unwrap().get_arguments().find(|arg| arg.get_id() == id);
            arg.map(clap::Arg::get_possible_values).unwrap().iter().map(|value| value.get_name().to_string()).collect()
        };
        assert!(offered("ask", "names").len() > experiments::ALL.len());
        assert!(offered("predict", "gpu").contains(&"rtx4090".to_string()));
        assert!(offered("train", "model").contains(&"gpt2".to_string()));
    }

    #[test]
    fn shells_offer_no_earlier_names_and_nothing_hidden() {
        let whole = args::whole(false);
        let mut command = shown(&whole);
        command.build();
        for name in ["rehearse", "fit", "list", "explain", "estimate"] {
            assert!(whole.find_subcommand(name).is_some() && command.find_subcommand(name).is_none(), "{name}");
        }
        let hidden = |of: &Command| of.get_subcommands().flat_map(Command::get_arguments).any(Arg::is_hide_set);
        assert!(hidden(&whole) && !hidden(&command));
        assert!(command.find_subcommand("help").is_none());
        let there = |of: &Command, name: &&str| of.find_subcommand(name).is_some();
        assert!(args::SHOWN.iter().all(|name| there(&command, name) == there(&whole, name)));
    }

    #[test]
    fn every_page_has_examples_exit_codes_and_files() {
        let mut root = args::whole(false);
        root.build();
        for command in std::iter::once(&root).chain(subcommands(&root)) {
            let text = page(command).unwrap();
            for title in ["NAME", "SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""] {
                assert!(text.contains(&format!(".SH {title}\n")), "{}: {title}: {text}", command.get_name());
            }
        }
        assert!(page(root.find_subcommand("check").unwrap()).unwrap().contains("memory.lock.json"));
    }
}
