//! `vramlab completions` and `vramlab man`: made from the definition of the command line.

use clap::CommandFactory;

use crate::args::Cli;
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;

/// Prints the completion script of a shell.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn completions(shell: clap_complete::Shell, ui: &Ui) -> Result<Code> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vramlab", &mut script);
    ui.print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Done)
}

/// Prints the manual: the program's page, then one for each command.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn man(ui: &Ui) -> Result<Code> {
    let mut root = Cli::command();
    root.build();
    let commands = root.get_subcommands().filter(|sub| sub.get_name() != "help").cloned();
    let pages: Vec<clap::Command> = std::iter::once(root.clone()).chain(commands).collect();
    let mut text = Vec::new();
    for page in pages {
        let name = page.get_display_name().unwrap_or(page.get_name()).to_string();
        let page = clap_mangen::Man::new(page).title(name);
        page.render(&mut text).map_err(|error| Failure::new(Code::Usage, error))?;
    }
    ui.print(&String::from_utf8_lossy(&text))?;
    Ok(Code::Done)
}
