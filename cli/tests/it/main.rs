//! The program run as users run it: the tests of all commands, as one program.

mod any_model;
mod bench;
mod cases;
mod check;
mod common;
mod convolutions;
mod data_parallel;
mod devices;
mod documents;
mod experiments;
mod exported;
mod fit;
mod help;
mod hf_args;
mod hostile;
#[cfg(unix)]
mod inputs;
mod interrupt;
mod markdown;
#[cfg(feature = "mcp")]
mod mcp;
mod monitor;
mod own_backend;
mod parallel;
mod plan;
mod plan_lengths;
mod prediction;
mod premises;
mod profiles;
mod recipes;
mod refusals;
mod rehearse;
mod rehearse_attacks;
mod rehearse_files;
mod rehearse_killed;
mod rehearse_periods;
mod rehearse_phases;
mod rehearse_ranks;
mod rehearse_scan;
mod rehearse_truth;
mod releases;
mod replay;
mod report;
mod same;
mod scan;
mod screens;
mod shard;
mod show;
mod snapshots;
mod three_figures;
mod training;
mod tries;
mod typed;
#[cfg(feature = "ui")]
mod ui;
mod view;
mod viewer;
mod walks;
mod warnings;
mod watch;
mod weights;
#[cfg(target_os = "linux")]
mod workspaces;
