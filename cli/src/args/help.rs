//! What `-h` and `--help` show: few commands, at most ten flags on a short page, and on the long one flags by task.

use clap::builder::{Resettable, Str};
use clap::{Arg, ArgAction, Command};
use lab::run::RunSpec;

use super::settings;

/// The commands that are shown, in this order. All others work, and have a help of their own.
pub(crate) const SHOWN: [&str; 10] =
    ["predict", "plan", "open", "diff", "ask", "watch", "check", "train", "ui", "info"];

/// A flag, and a few words about it.
type Few = &'static [(&'static str, &'static str)];

/// The short page of a command: what it does, how it is called, its flags, an example.
struct Short {
    command: &'static str,
    about: &'static str,
    usage: &'static str,
    flags: Few,
    end: &'static str,
}

/// The short pages.
static SHORT: [Short; 10] = [
    Short {
        command: "predict",
        about: "Will it fit? How much GPU memory a training needs, and what makes it fit.",
        usage: "vramlab predict WHAT [FLAGS]\n       vramlab predict [FLAGS] -- python train.py ...",
        flags: &[
            ("gpu", "The card (rtx4090, \"RTX 4090\") or memory (24GiB)"),
            ("batch", "Examples per step"),
            ("sequence", "Tokens per example"),
            ("precision", "fp32, bf16, fp16, autocast-bf16, autocast-fp16"),
            ("optimizer", "adamw, sgd, adamw8bit, lion, adafactor, radam, …"),
            ("checkpoint", "Recompute in backward: blocks"),
            ("accumulate", "Micro-batches per optimizer step"),
            ("largest", "Find the largest batch that fits, or sequence"),
            ("html", "Write a page to look at"),
            ("json", "Write everything as JSON; - for standard output"),
        ],
        end: "WHAT is a script (train.py), a config.json, a .pt2, a recipe (YAML, TOML) or a\n\
              name (gpt2, org/model). A script is run on a simulated card, a network is not.\n\
              All flags, by task: vramlab predict --help",
    },
    Short {
        command: "plan",
        about: "Find the fastest way to train on a card with so many examples a step.",
        usage: "vramlab plan NETWORK --global-batch N --gpu CARD [FLAGS]",
        flags: &[
            ("global-batch", "Examples of a step, on all cards together"),
            ("gpu", "The card (rtx4090, \"RTX 4090\") or memory (24GiB)"),
            ("gpus", "Which of these cards: rtx4090,a100-80, or any"),
            ("sequence", "Tokens per example"),
            ("allow", "Changes of results: numbers, optimizer, adapters"),
            ("precision", "fp32, bf16, fp16, autocast-bf16, autocast-fp16"),
            ("optimizer", "adamw, adam, sgd, momentum, rmsprop, adagrad"),
            ("data-parallel", "Cards that divide a step's batch"),
            ("html", "Write a page to look at"),
            ("json", "Write everything as JSON; - for standard output"),
        ],
        end: "NETWORK is a config.json, a .pt2, a recipe or a name. Each plan is run dry.\n\
              Example: vramlab plan gpt2 --global-batch 64 --gpu rtx4090\nAll flags: vramlab plan --help",
    },
    Short {
        command: "open",
        about: "Look at a file: a snapshot, a log with an error, a result, a recording.",
        usage: "vramlab open FILE... [FLAGS]",
        flags: &[
            ("html", "Write a page to look at"),
            ("view", "Look at a recording on the terminal, event by event"),
            ("json", "Write everything as JSON; - for standard output"),
            ("device", "Number of the GPU in a snapshot"),
            ("match", "Only memory of this line or operator"),
            ("top", "Number of lines to list"),
        ],
        end: "Two snapshots are compared, two results stand side by side.\n\
              Example: vramlab open snapshot.pickle",
    },
    Short {
        command: "ask",
        about: "Ask a question about memory: an experiment, measured here, with a verdict.",
        usage: "vramlab ask [NAME]... [FLAGS]",
        flags: &[
            ("claims", "One table of claims, with verdicts"),
            ("set", "Other sizes: batch=32,64"),
            ("model", "Ask about another network"),
            ("backend", "Where it runs: cpu, cuda, wgpu, meta (only counts)"),
            ("like", "Whose memory is counted: torch-2.11-sm89"),
            ("html", "Write a page to look at"),
            ("json", "Write everything as JSON; - for standard output"),
        ],
        end: "Without a name: the list of questions. Example: vramlab ask batch-size\nAll flags: vramlab ask --help",
    },
    Short {
        command: "watch",
        about: "Watch the memory of a PyTorch training while it runs, or of all trainings that run.",
        usage: "vramlab watch [FLAGS] -- python train.py [ARGUMENTS]\n       vramlab watch [PID] [FLAGS]",
        flags: &[
            ("predicted", "A result of predict --json, to stand beside"),
            ("snapshot", "Where the snapshot of running out goes"),
            ("once", "Print one reading, then end"),
            ("interval", "Seconds between two readings"),
            ("json", "Write the readings as JSON; - for standard output"),
        ],
        end: "Ctrl-\\ writes a snapshot. In Python: vramlab.watch().",
    },
    Short {
        command: "check",
        about: "Fail in continuous integration if a training needs more memory than before.",
        usage: "vramlab check FILE [NETWORK] [FLAGS]",
        flags: &[
            ("update", "Write the file with what is needed now"),
            ("tolerance", "Growth that still passes: 1MiB, 2%"),
            ("model-file", "With --update: config.json, .pt2, TOML"),
            ("batch", "With --update: examples a step"),
            ("gpu", "With --update: the card"),
            ("json", "Write everything as JSON; - for standard output"),
        ],
        end: "Example: vramlab check memory.lock.json --update gpt2 --batch 8\nAll flags: vramlab check --help",
    },
    Short {
        command: "train",
        about: "Train a network of vramlab on this machine, and account for its memory.",
        usage: "vramlab train [NETWORK] [FLAGS]",
        flags: &[
            ("data", "synthetic, digits, or a path of MNIST or CIFAR-10"),
            ("batch", "Examples per step"),
            ("steps", "Optimizer steps"),
            ("optimizer", "adamw, sgd, adamw8bit, lion, adafactor, radam, …"),
            ("precision", "fp32, bf16, fp16, autocast-bf16, autocast-fp16"),
            ("backend", "Where it runs: cpu, cuda, wgpu, opencl, meta"),
            ("save", "Write weights and state after the last step"),
            ("events", "Write every allocation and free as JSON"),
            ("html", "Write a page to look at"),
            ("json", "Write everything as JSON; - for standard output"),
        ],
        end: "Example: vramlab train mlp --data digits\nAll flags: vramlab train --help",
    },
    Short {
        command: "bench",
        about: "Measure in less than a minute how fast the devices of this machine are.",
        usage: "vramlab bench [FLAGS]",
        flags: &[
            ("backend", "Only the devices of one backend"),
            ("seconds", "Time for all measurements together"),
            ("html", "Write a page to look at"),
            ("json", "Write everything as JSON; - for standard output"),
        ],
        end: "Example: vramlab bench --html bench.html",
    },
    Short {
        command: "ui",
        about: "Open the laboratory in a browser: move sliders, and see at once what fits.",
        usage: "vramlab ui [LINK] [FLAGS]",
        flags: &[
            ("port", "The port; a free one by default"),
            ("no-open", "Print the address, and open no browser"),
            ("public", "Serve everyone on this address, without files"),
        ],
        end: "The page listens on this machine alone, and its address has a token.\n\
              Example: vramlab ui",
    },
    Short {
        command: "info",
        about: "Look something up: cards, devices, models, experiments, or a network inside.",
        usage: "vramlab info cards|devices|models|experiments|NETWORK [FLAGS]",
        flags: &[
            ("batch", "Of a network: examples per step"),
            ("html", "Write a page to look at (cards, a network)"),
            ("json", "Write everything as JSON; - for standard output"),
        ],
        end: "Example: vramlab info gpt2 --batch 8",
    },
];

/// Flags of `predict` by task, on the long page. Fields of the run that stand in none are set by `--set`, or by a flag of their own name.
pub(crate) static TASKS: [(&str, &[&str]); 8] = [
    (
        "The network",
        &["sequence", "batch", "attention", "head", "transformers", "loss", "adversary", "model", "model-file"],
    ),
    ("The card", &["gpu", "like", "cudnn-workspace", "memory-limit"]),
    (
        "The training",
        &["precision", "optimizer", "optimizer-impl", "steps", "loop", "hf-args", "recipe", "config", "set"],
    ),
    (
        "Make it fit",
        &[
            "largest",
            "lora",
            "load-in-4bit",
            "checkpoint",
            "checkpoint-save",
            "logits-to-keep",
            "packing",
            "accumulate",
            "alloc-conf",
            "keep",
            "hold",
            "save-on-cpu",
            "zero-grad",
            "channels-last",
        ],
    ),
    ("Several cards", &["data-parallel", "zero", "devices", "micro-batches"]),
    ("Evaluation, other sizes", &["eval-every", "eval-batch", "batches", "lengths", "ema"]),
    ("Over a range", &["parameter-list", "parameter-scan", "parameter-step-size", "continue", "shard"]),
    (
        "Output",
        &[
            "html",
            "json",
            "export-csv",
            "export-markdown",
            "snapshot",
            "events",
            "summary",
            "stats",
            "export-trace",
            "export-folded",
            "export-minimalloc",
            "full",
            "quiet",
            "verbose",
            "color",
        ],
    ),
];

/// The end of the page of the program.
const EXAMPLE: &str = "Example: will it fit?\n  vramlab predict train.py --gpu rtx4090\n  vramlab predict config.json --batch 4 --gpu rtx4090";

/// The further end of its long page.
const OTHERS: &str = "For the shell: vramlab completions bash, vramlab man. Each command has a short page (-h) and a long one (--help). \
    Earlier names still work: rehearse, fit, run, list, cards, devices, show, snapshot, explain, replay, tune, report, view, monitor.";

/// Adds the commands that only choose others, and shapes what is shown: for `-h`, or for `--help`.
pub(super) fn shaped(command: Command, short: bool) -> Command {
    let command = with_doors(command)
        .disable_help_subcommand(true)
        .after_help(EXAMPLE)
        .after_long_help(format!("{EXAMPLE}\n\n{OTHERS}"));
    let command = command.mut_subcommands(|sub| match SHOWN.iter().position(|name| *name == sub.get_name()) {
        Some(place) => sub.display_order(place),
        None => sub.hide(true),
    });
    let command = SHORT
        .iter()
        .fold(command, |command, page| command.mut_subcommand(page.command, |sub| shortened(sub, page, short)));
    let command = match short {
        true => command.mut_args(|arg| arg.hide_short_help(true)),
        false => command,
    };
    command.mut_subcommand("predict", |predict| by_task(predict, short))
}

/// The commands that look at a file or a word and choose another command. Their flags are those of the commands that they choose.
pub(super) fn with_doors(command: Command) -> Command {
    let value = |name: &'static str, shown: &'static str, about: &'static str| {
        Arg::new(name).long(name).value_name(shown).help(about)
    };
    let outputs = || {
        [
            value("html", "FILE.html", "Write a page to look at."),
            value("json", "FILE", "Write everything as JSON; `-` for standard output."),
        ]
    };
    let open = Command::new("open")
        .about("Look at a file: a snapshot, a log with an error, a result, a recording")
        .long_about(
            "Look at a file. vramlab tells what it is, and takes the flags of the command that reads it: snapshot show (a snapshot), \
             snapshot diff (two), explain (a log or a pasted message), replay (a recording), report (results of --json).",
        )
        .after_help("Example: who held the memory when it ran out?\n  vramlab open snapshot.pickle\n\nExample: what does the error in this log mean?\n  vramlab open train.log")
        .arg(Arg::new("file").value_name("FILE").num_args(1..).required(true).help("The files; `-` for a message on standard input."))
        .args(outputs())
        .arg(Arg::new("view").long("view").action(ArgAction::SetTrue).help("Look at a recording on the terminal, event by event."))
        .arg(value("device", "N", "Number of the GPU in a snapshot [default: the one that ran out of memory, else the one with most reserved]."))
        .arg(value("match", "TEXT", "Consider only memory with this in its stack: a line (train.py:7), a file, a function, an operator (conv2d)."))
        .arg(value("top", "N", "Number of lines to list."));
    let info = Command::new("info")
        .about("Look something up: cards, devices, models, experiments, or a network from the inside")
        .after_help("Example: the cards that --gpu knows\n  vramlab info cards\n\nExample: what GPT-2 saves for backward\n  vramlab info gpt2 --batch 8")
        .arg(Arg::new("topic").value_name("TOPIC").required(true).help("cards, devices, models, experiments, or a network: a name or a file."))
        .arg(value("batch", "N", "Of a network: examples per step."))
        .args(outputs());
    command.subcommand(open).subcommand(info)
}

fn shortened(command: Command, page: &'static Short, short: bool) -> Command {
    let shown = |arg: &Arg| page.flags.iter().position(|(name, _)| arg.get_long() == Some(*name));
    let command = command.override_usage(page.usage).mut_args(|arg| match shown(&arg) {
        Some(place) => {
            let long = arg.get_long_help().or(arg.get_help()).cloned();
            let arg = arg.help(page.flags[place].1);
            let arg = long.into_iter().fold(arg, |arg, long| arg.long_help(long));
            match short {
                // On the short page values are named in the words, and headings would take lines.
                true => {
                    let arg = arg.display_order(place).help_heading(Resettable::<Str>::Reset);
                    let takes = arg.get_action().takes_values();
                    if takes { arg.hide_possible_values(true).hide_default_value(true) } else { arg }
                }
                false => arg,
            }
        }
        None => arg.hide_short_help(true),
    });
    match short {
        true => command.about(page.about).after_help(page.end),
        false => command,
    }
}

/// Orders the long page of `predict` by task. Flags in no task are hidden: they are listed at the end, by the names of their fields.
fn by_task(command: Command, short: bool) -> Command {
    let largest = Arg::new("largest")
        .long("largest")
        .value_name("WHAT")
        .num_args(0..=1)
        .help(SHORT[0].flags.iter().find(|(name, _)| *name == "largest").map_or("", |(_, words)| *words))
        .long_help("Find the largest batch that fits, or with --largest sequence the longest sequence, with the formula of the peak (the command fit).")
        .display_order(7)
        .help_heading(Resettable::<Str>::Reset);
    let command = command.arg(largest);
    let command = command.mut_args(|arg| match arg.get_long().map(task_of) {
        Some(Some(task)) if !short => arg.help_heading(task),
        Some(None) => arg.hide_long_help(true).hide_short_help(true),
        _ => arg,
    });
    let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.after_long_help(format!("{example}\n\n{}\n\n{}\n\n{}", of_scripts(), others(), settings::help()))
}

/// Returns the task that a flag stands in.
fn task_of(flag: &str) -> Option<&'static str> {
    TASKS.iter().find(|(_, flags)| flags.contains(&flag)).map(|(task, _)| *task)
}

/// What a rehearsal takes besides.
fn of_scripts() -> String {
    "With a script (vramlab rehearse --help says all): --gpus N, --world N, --steps N, --seconds S, --until-seen eval,save, \
     --snapshot FILE, --keep-outputs DIR, --offline, --make-data, --late-events, -L NAME VALUES for {NAME} in the command. Arguments after \
     the script that are none of these are the script's own."
        .into()
}

/// Fields of a run on a device, which a prediction does not have.
const ELSEWHERE: [&str; 6] = ["backend", "device", "cuda-graph", "tf32", "load", "resume"];

/// The fields that have no place in a task, by name.
fn others() -> String {
    let tasks: Vec<&str> = TASKS.iter().flat_map(|(_, flags)| flags.iter().copied()).collect();
    let fields = RunSpec::default().fields();
    let others = fields.keys().map(String::as_str).filter(|name| !tasks.contains(name) && !ELSEWHERE.contains(name));
    let mut text = String::from("Every other setting, as --set NAME=VALUE or --NAME VALUE:\n ");
    let mut width = 1;
    for name in others {
        if width + name.len() + 1 > 98 {
            text += "\n ";
            width = 1;
        }
        text += " ";
        text += name;
        width += name.len() + 1;
    }
    text
}
