//! The whole command line: the commands, composed of the groups of flags.

use clap::builder::PossibleValuesParser;
use clap::{CommandFactory, Parser, Subcommand};

use super::declared::RunFlags;
use super::{
    BenchArgs, CardsArgs, CheckArgs, DevicesArgs, ExplainArgs, FitArgs, GlobalArgs, ListArgs, ManArgs, ModelsArgs,
    MonitorArgs, NetworkArgs, PlanArgs, PredictArgs, ReplayArgs, ReportArgs, RunArgs, SnapshotArgs, TrainArgs,
    TuneArgs,
};
use crate::backends;

/// How much GPU memory a training needs, what uses it, and what makes it fit.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "vramlab",
    version = env!("VRAMLAB_VERSION"),
    arg_required_else_help = true,
    subcommand_required = true,
    args_override_self = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// List every device that this build sees, with its memory.
    #[command(after_help = "Example: the devices, for another program\n  vramlab devices --json -")]
    Devices(DevicesArgs),
    /// List the experiments, with the question and the claims of each.
    #[command(after_help = "Example: the experiments, and the sizes that can be set in each\n  vramlab list --full")]
    List(ListArgs),
    /// List the cards that --gpu knows: the memory that the driver reports, what a process takes of it besides what PyTorch reserved, and the source of each figure.
    #[command(after_help = "Example: the cards, with the sources\n  vramlab cards --full")]
    Cards(CardsArgs),
    /// List the networks that `predict` and `train` know by name.
    #[command(after_help = "Example: the networks, for another program\n  vramlab models --json -")]
    Models(ModelsArgs),
    /// Show a network from the inside: its modules, parameters and shapes for a batch, and what each module and operator saves for backward.
    #[command(after_help = "Example: GPT-2 with a batch of 8\n  vramlab show gpt2 --batch 8\n\n\
            Example: a network of your own, every module and operator\n  vramlab show model.pt2 --batch 32 --full\n\n\
            Example: a config.json of transformers, as a page\n  vramlab show config.json --sequence 2048 --html network.html")]
    Show(RunFlags<NetworkArgs>),
    /// Ask a question about memory: an experiment with a prediction, a measurement and a verdict; without a name, the list.
    #[command(
        name = "ask",
        alias = "run",
        after_help = "Example: one experiment without a device, with its own sizes\n  \
            vramlab ask batch-size --backend meta --set batch=32,64,128\n\n\
            Example: the verdicts for several batches of another network\n  \
            vramlab ask steady-state --backend meta --model mlp -L batch 32,128,512"
    )]
    Run(RunFlags<RunArgs>),
    /// Train a network of vramlab on this machine, and account for its memory, phase by phase.
    #[command(after_help = "Example: handwritten digits in a minute, on the CPU\n  \
            vramlab train --model mlp --data digits --backend cpu\n\n\
            Example: the peak for three batch sizes\n  \
            vramlab train --model simple-cnn -L batch 32,64,128\n\n\
            Example: a network split over two devices\n  \
            vramlab train --model mlp --devices cpu:0,cpu:1 --micro-batches 4\n\n\
            Example: ten steps in two halves\n  \
            vramlab train --model mlp --data digits --steps 5 --save half.safetensors\n  \
            vramlab train --model mlp --data digits --steps 5 --resume half.safetensors")]
    Train(RunFlags<TrainArgs>),
    /// Will it fit? How much GPU memory a training needs, and what makes it fit: a script, a command, a model file, a name.
    #[command(after_help = "Example: does this script fit on an RTX 4090?\n  \
            vramlab predict train.py --gpu rtx4090\n\n\
            Example: with arguments of its own\n  \
            vramlab predict --gpu rtx4090 -- python train.py --batch-size 16\n\n\
            Example: does GPT-2 with a batch of 8 fit in 24 GiB?\n  \
            vramlab predict gpt2 --batch 8 --gpu 24GiB\n\n\
            Example: a config.json of Hugging Face, and its largest batch\n  \
            vramlab predict config.json --gpu rtx4090 --largest")]
    Predict(RunFlags<PredictArgs>),
    /// Find the largest batch (or sequence) for a card, with the formula of the peak, verified.
    #[command(after_help = "Example: the largest batch of GPT-2 on an RTX 4090\n  \
            vramlab fit --model gpt2 --optimizer adamw --gpu rtx4090")]
    Fit(RunFlags<FitArgs>),
    /// Find the fastest way to train on a card with so many examples a step: techniques and micro-batches, each run dry.
    #[command(after_help = "Example: GPT-2 with 64 texts a step on an RTX 4090\n  \
            vramlab plan gpt2 --global-batch 64 --gpu rtx4090\n\n\
            Example: a config.json of Hugging Face, with other numeric types allowed\n  \
            vramlab plan config.json --global-batch 32 --sequence 2048 --gpu rtx4090 --allow numbers")]
    Plan(RunFlags<PlanArgs>),
    /// Run a training script of your own on a card that is not there, and say whether it fits and what takes the memory.
    #[cfg(target_os = "linux")]
    #[command(after_help = "Example: does this script fit on an RTX 4090?\n  \
            vramlab rehearse --gpu rtx4090 -- python train.py --batch-size 16\n\n\
            Example: the largest batch that fits, and the formula of the peak\n  \
            vramlab rehearse --gpu rtx4090 -L batch 1,2,4 -- python train.py --batch-size {batch}\n\n\
            Example: two ranks, and PyTorch's snapshot of each\n  \
            vramlab rehearse --gpu a100-40 --gpus 2 --snapshot run.pickle -- torchrun --nproc-per-node 2 train.py")]
    Rehearse(RunFlags<super::RehearseArgs>),
    /// Run a recorded allocation trace through any allocator, or several side by side.
    #[command(after_help = "Example: what would expandable segments and a perfect plan have taken?\n  \
            vramlab replay run.json --compare caching,expandable,planned\n\n\
            Example: a run of your own, recorded and replayed on a smaller device\n  \
            vramlab train --model mlp --data digits --events run.json\n  \
            vramlab replay run.json --memory-limit 80MiB")]
    Replay(ReplayArgs),
    /// Look at PyTorch's memory snapshots: who holds what, what differs, what other settings would have taken.
    #[command(after_help = "Example: who holds the memory of a recorded run?\n  \
            vramlab snapshot show snapshot.pickle")]
    Snapshot(SnapshotArgs),
    /// Find where two runs begin to differ in memory, in whose line, and what follows.
    #[command(after_help = "Example: two recordings of a real run\n  \
            vramlab diff before.pickle after.pickle\n\n\
            Example: two runs that are made now\n  \
            vramlab diff \"train.py --python old/python\" \"train.py --python python3\"")]
    Diff(super::RunsArgs),
    /// Find the best settings of PyTorch's allocator for a recorded run.
    #[command(after_help = "Example: the PYTORCH_CUDA_ALLOC_CONF for a run that was recorded with stacks\n  \
            vramlab tune snapshot.pickle")]
    Tune(TuneArgs),
    /// Fail in continuous integration if a training needs more memory than before, and name what grew.
    #[command(
        after_help = "Example: write down what a run takes, and fail in continuous integration when it takes more\n  \
            vramlab check --baseline memory.lock.json --update --model gpt2 --batch 8\n  \
            vramlab check --baseline memory.lock.json\n\n\
            Example: a second run in the same file, and 2 % of growth allowed\n  \
            vramlab check --baseline memory.lock.json --update --name small --model-file examples/models/digits-mlp.toml\n  \
            vramlab check --baseline memory.lock.json --tolerance 2%\n\n\
            Example: after an intended change\n  \
            vramlab check --baseline memory.lock.json --update"
    )]
    Check(RunFlags<CheckArgs>),
    /// Explain an out-of-memory message of PyTorch, pasted or from a log, and say what to try.
    #[command(after_help = "Example: what the last message of a log says\n  \
            vramlab explain train.log")]
    Explain(ExplainArgs),
    /// Measure in less than a minute how fast the devices are, each as a share of its own roofline.
    #[command(after_help = "Example: every device, as a page with a chart\n  vramlab bench --html bench.html\n\n\
            Example: the processor alone, in five seconds, for another program\n  \
            vramlab bench --backend cpu --seconds 5 --json -")]
    Bench(BenchArgs),
    /// Estimate for another program, as the library for C does: JSON on standard output, also for errors.
    #[command(
        hide = true,
        after_help = "Example: a network's name, and fields of a run\n  vramlab estimate gpt2 '{\"batch\":8}'"
    )]
    Estimate {
        /// A network's name, a file, or the text of a config.json.
        configuration: String,
        /// Fields of a run, as an object of JSON.
        #[arg(default_value = "{}")]
        arguments: String,
    },
    /// Watch the memory of a PyTorch training while it runs, or of all trainings that run.
    #[command(
        name = "watch",
        alias = "monitor",
        after_help = "Example: a training of PyTorch, with what had been predicted beside it\n  \
            vramlab watch --predicted predicted.json -- python train.py\n\n\
            Example: what runs now, for another program\n  vramlab watch --once --json -"
    )]
    Monitor(MonitorArgs),
    /// Make a report to look at, one HTML file, from results and recordings.
    #[command(after_help = "Example: a page of a run's memory, from what was written of it\n  \
            vramlab report run.json events.json -o run.html\n\n\
            Example: the two files, or the page at once\n  \
            vramlab train --model simple-cnn --json run.json --events events.json\n  \
            vramlab train --model simple-cnn --html run.html\n\n\
            Example: two runs beside each other\n  \
            vramlab report before.json after.json -o both.html\n\n\
            Example: where memory was, for ui.perfetto.dev\n  \
            vramlab report events.json --export-trace trace.json")]
    Report(ReportArgs),
    /// Look at a recording on the terminal, event by event: the curve, and at any moment who holds memory and where it lies.
    #[cfg(feature = "view")]
    #[command(after_help = "Example: a snapshot, from where memory ran out\n  \
            vramlab view snapshot.pickle\n\n\
            Example: a run of your own\n  \
            vramlab train --model simple-cnn --events events.json\n  \
            vramlab view events.json\n\n\
            Keys: arrows by event (with Shift by 1 %), PgUp and PgDn by step, p next peak, o next out of memory, / search by\n\
            line, module or operator (n, N), + and - zoom, Tab the other list, ? all keys, q quit.")]
    View(super::ViewArgs),
    /// Open the laboratory in a browser: choose a network and a card, move sliders, and see at once what fits.
    #[cfg(feature = "ui")]
    #[command(
        after_help = "Example: only the address, to open it elsewhere on this machine\n  vramlab ui --no-open --port 8421\n\n\
            Example: for everyone who reaches this machine, without files\n  vramlab ui --public 0.0.0.0 --port 8421"
    )]
    Ui(super::UiArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example: completions for bash, in this session\n  source <(vramlab completions bash)")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print a page of the manual: the program's, or a command's.
    #[command(after_help = "Example: read it\n  vramlab man | man -l -\n\n\
            Example: a page for each command, where man finds them\n  vramlab man --write ~/.local/share/man/man1")]
    Man(ManArgs),
    /// Offer predict, fit, explain and snapshot show as tools to an assistant, by the Model Context Protocol on standard input and output.
    #[cfg(feature = "mcp")]
    #[command(after_help = "Example: for an assistant that starts its tools itself\n  vramlab mcp --dir .")]
    Mcp(super::McpArgs),
}

impl Cli {
    /// Returns the command line as it is declared: of some flags a run has one or the other.
    pub(crate) fn declared() -> clap::Command {
        with_backends(with_rivals(Self::command()))
    }
}

/// Lets flags of which a run has one or the other replace each other.
fn with_rivals(command: clap::Command) -> clap::Command {
    let id = |command: &clap::Command, name: &str| {
        command.get_arguments().find(|arg| arg.get_long() == Some(name)).map(|arg| arg.get_id().clone())
    };
    let command =
        lab::run::RIVALS.iter().fold(command, |command, (one, other)| match (id(&command, one), id(&command, other)) {
            (Some(one), Some(other)) => command.mut_arg(one, |arg| arg.conflicts_with(other)),
            _ => command,
        });
    command.mut_subcommands(with_rivals)
}

/// Lets flags of a run name the backends of this program alone.
fn with_backends(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "backend" if arg.get_possible_values().is_empty() => {
            arg.value_parser(PossibleValuesParser::new(backends::names()))
        }
        "like" => arg.value_parser(backends::profile),
        _ => arg,
    });
    command.mut_subcommands(with_backends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Refusal;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_that_parses() {
        let mut command = Cli::command();
        command.build();
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let text = sub.get_after_help().unwrap_or_else(|| panic!("{} has no example", sub.get_name())).to_string();
            let line = text.lines().find_map(|line| line.trim().strip_prefix("vramlab "));
            let shell = |c: char| matches!(c, '|' | '>' | ')');
            if let Some(line) = line.and_then(|line| line.split(shell).next()) {
                let words = std::iter::once("vramlab").chain(line.split_whitespace()).map(Into::into);
                let parsed = crate::args::parse(words.collect());
                // The example's files are not here.
                let problem = parsed.err().map(|refusal| match refusal {
                    Refusal::Clap(error) => error.to_string(),
                    Refusal::Failure(failure) => failure.error.to_string(),
                });
                let is_missing = problem.as_ref().is_none_or(|problem| problem.contains("there is no such file"));
                assert!(is_missing, "{line}: {problem:?}");
            }
        }
    }
}
