//! Group e: fully connected networks with every training technique.

use super::run::{check_file, scripts};

/// Hidden layers, their width, examples per step, features per example.
#[derive(Clone, Copy)]
struct Mlp(usize, usize, usize, usize);

const S: Mlp = Mlp(2, 128, 32, 64);
const M: Mlp = Mlp(4, 1024, 256, 512);
const W: Mlp = Mlp(3, 2048, 64, 1024);
const D: Mlp = Mlp(8, 512, 128, 512);

/// Steps that the recorded program makes itself.
const ORDER: &str = r#"order = ["zero_grad", "input", "forward", "loss", "backward", "step"]"#;

struct Program<'a> {
    /// Blocks of a linear layer and its relu are checkpointed, in a loop whose variable holds the last result.
    recomputing: bool,
    /// Lines at the beginning of the file.
    head: &'a str,
    optimizer: &'a str,
    schedule: &'a str,
}

const PLAIN: Program<'_> = Program { recomputing: false, head: "", optimizer: "", schedule: ORDER };

impl Program<'_> {
    fn check(&self, name: &str, mlp: Mlp, optimizer: &str) {
        let Mlp(layers, width, batch, features) = mlp;
        let Program { recomputing, head, optimizer: options, schedule } = self;
        let [around, block] = if *recomputing { ["variable", "checkpoint"] } else { ["sequence", "sequence"] };
        let text = format!(
            r#"
            batch = {batch}
            steps = 3
            {head}
            [input]
            shape = [{features}]
            [[layer]]
            type = "{around}"
            [[layer.layer]]
            type = "{block}"
            repeat = {layers}
            [[layer.layer.layer]]
            type = "linear"
            out = {width}
            [[layer.layer.layer]]
            type = "relu"
            [[layer]]
            type = "linear"
            out = 10
            [loss]
            type = "mse"
            [optimizer]
            name = "{optimizer}"
            {options}
            [schedule]
            {schedule}
            "#
        );
        check_file(name, &text);
    }
}

fn plain(name: &str, mlp: Mlp, optimizer: &str) {
    PLAIN.check(name, mlp, optimizer);
}

fn with(name: &str, mlp: Mlp, optimizer: &str, options: &str) {
    Program { optimizer: options, ..PLAIN }.check(name, mlp, optimizer);
}

fn zeroing(name: &str, mlp: Mlp, optimizer: &str) {
    Program { head: "zero_grad = \"zero\"", ..PLAIN }.check(name, mlp, optimizer);
}

fn at_precision(name: &str, mlp: Mlp, precision: &str, schedule: &str) {
    let head = format!("precision = \"{precision}\"");
    Program { head: &head, schedule, ..PLAIN }.check(name, mlp, "adamw");
}

fn recomputing(name: &str, mlp: Mlp) {
    Program { recomputing: true, ..PLAIN }.check(name, mlp, "adamw");
}

/// The loss scaler is updated in a phase of its own.
const UPDATE: &str = r#"order = ["zero_grad", "input", "forward", "loss", "backward", "step", "update"]"#;
/// The model is cast after it was made.
const CAST: &str = "cast = true\norder = [\"zero_grad\", \"input\", \"forward\", \"loss\", \"backward\", \"step\"]";

const LOOP: &str = "implementation = \"loop\"";
const FOREACH: &str = "implementation = \"foreach\"";

scripts! {
    e_mlp_s_sgd => |name| plain(name, S, "sgd");
    e_mlp_s_sgdm => |name| plain(name, S, "momentum");
    e_mlp_s_adam => |name| plain(name, S, "adam");
    e_mlp_m_sgd => |name| plain(name, M, "sgd");
    e_mlp_m_sgdm => |name| plain(name, M, "momentum");
    e_mlp_m_sgdm_foreach0 => |name| with(name, M, "momentum", LOOP);
    e_mlp_m_sgdm_foreach1 => |name| with(name, M, "momentum", FOREACH);
    e_mlp_m_adam => |name| plain(name, M, "adam");
    e_mlp_m_adam_foreach0 => |name| with(name, M, "adam", LOOP);
    e_mlp_m_adam_foreach1 => |name| with(name, M, "adam", FOREACH);
    e_mlp_m_adam_expandable => |name| plain(name, M, "adam");
    e_mlp_m_adam_ltunified => |name| plain(name, M, "adam");
    e_mlp_m_adam_maxsplit20 => |name| plain(name, M, "adam");
    e_mlp_m_adam_sm75 => |name| plain(name, M, "adam");
    e_mlp_m_adam_sm80 => |name| plain(name, M, "adam");
    e_mlp_m_adam_capturable => |name| with(name, M, "adam", "capturable = true");
    e_mlp_m_adamw => |name| plain(name, M, "adamw");
    e_mlp_m_adamw_foreach0 => |name| with(name, M, "adamw", LOOP);
    e_mlp_m_adamw_foreach1 => |name| with(name, M, "adamw", FOREACH);
    e_mlp_m_adamw_fused => |name| with(name, M, "adamw", "implementation = \"fused\"");
    e_mlp_m_setnone0_sgd => |name| zeroing(name, M, "sgd");
    e_mlp_m_setnone0_adamw => |name| zeroing(name, M, "adamw");
    e_mlp_m_accum4_adamw => |name| Program { head: "accumulate = 4", ..PLAIN }.check(name, M, "adamw");
    e_mlp_m_amp16_adamw => |name| at_precision(name, M, "autocast-fp16", UPDATE);
    e_mlp_m_bf16autocast_adamw => |name| at_precision(name, M, "autocast-bf16", ORDER);
    e_mlp_w_bf16autocast_adamw => |name| at_precision(name, W, "autocast-bf16", ORDER);
    e_mlp_m_purebf16_adamw => |name| at_precision(name, M, "bf16", CAST);
    e_mlp_m_ckpt_adamw => |name| recomputing(name, M);
    e_mlp_d_ckpt_adamw => |name| recomputing(name, D);
    e_mlp_d_sgdm => |name| plain(name, D, "momentum");
    e_mlp_w_sgdm => |name| plain(name, W, "momentum");
    e_mlp_s_adamw => |name| plain(name, S, "adamw");
    e_mlp_m_adam_pow2_4 => |name| plain(name, M, "adam");
    e_mlp_m_adam_ws_4096_2 => |name| plain(name, M, "adam");
    e_mlp_m_amsgrad_adam => |name| with(name, M, "adam", "amsgrad = true");
    e_mlp_m_sgd_wd_nesterov => |name| with(name, M, "momentum", "weight_decay = 0.01\nnesterov = true");
    e_mlp_w_accum4_adamw => |name| Program { head: "accumulate = 4", ..PLAIN }.check(name, W, "adamw");
    e_mlp_w_adam_capturable => |name| with(name, W, "adam", "capturable = true");
    e_mlp_w_adam_foreach0 => |name| with(name, W, "adam", LOOP);
    e_mlp_w_adamw_fused => |name| with(name, W, "adamw", "implementation = \"fused\"");
    e_mlp_w_amp16_adamw => |name| at_precision(name, W, "autocast-fp16", UPDATE);
    e_mlp_w_purebf16_adamw => |name| at_precision(name, W, "bf16", CAST);
    e_mlp_w_setnone0_sgd => |name| zeroing(name, W, "sgd");
    e_mlp_w_ckpt_adamw => |name| recomputing(name, W);
    e_mlp_d_ckpt_bf16autocast_adamw => |name| {
        Program { recomputing: true, head: "precision = \"autocast-bf16\"", ..PLAIN }.check(name, D, "adamw");
    };
    e_mlp_w_sgd => |name| plain(name, W, "sgd");
    e_mlp_w_adam => |name| plain(name, W, "adam");
    e_mlp_w_adam_foreach1 => |name| with(name, W, "adam", FOREACH);
    e_mlp_w_adamw => |name| plain(name, W, "adamw");
    e_mlp_w_amsgrad_adam => |name| with(name, W, "adam", "amsgrad = true");
    e_mlp_w_setnone0_adamw => |name| zeroing(name, W, "adamw");
    e_mlp_d_sgd => |name| plain(name, D, "sgd");
    e_mlp_d_adam => |name| plain(name, D, "adam");
    e_mlp_d_adamw => |name| plain(name, D, "adamw");
}
