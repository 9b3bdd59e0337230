//! Group e: fully connected networks under every way of training them.

use crate::run::{check_file, scripts};

/// Hidden layers, their width, examples per step, features per example.
#[derive(Clone, Copy)]
struct Mlp(usize, usize, usize, usize);

const S: Mlp = Mlp(2, 128, 32, 64);
const M: Mlp = Mlp(4, 1024, 256, 512);
const W: Mlp = Mlp(3, 2048, 64, 1024);
const D: Mlp = Mlp(8, 512, 128, 512);

/// What the recorded program does by itself.
const ORDER: &str = r#"order = ["zero_grad", "input", "forward", "loss", "backward", "step"]"#;

struct Program<'a> {
    /// Type of the layer that a linear layer and its relu are in.
    block: &'a str,
    /// Lines of the file's head.
    head: &'a str,
    optimizer: &'a str,
    schedule: &'a str,
}

const PLAIN: Program<'_> = Program { block: "sequence", head: "", optimizer: "", schedule: ORDER };

impl Program<'_> {
    fn check(&self, name: &str, mlp: Mlp, optimizer: &str) {
        let Mlp(layers, width, batch, features) = mlp;
        let Program { block, head, optimizer: options, schedule } = self;
        let text = format!(
            r#"
            batch = {batch}
            steps = 3
            {head}
            [input]
            shape = [{features}]
            [[layer]]
            type = "{block}"
            repeat = {layers}
            [[layer.layer]]
            type = "linear"
            out = {width}
            [[layer.layer]]
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
    e_mlp_m_adamw => |name| plain(name, M, "adamw");
    e_mlp_m_adamw_foreach0 => |name| with(name, M, "adamw", LOOP);
    e_mlp_m_adamw_foreach1 => |name| with(name, M, "adamw", FOREACH);
    e_mlp_m_adamw_fused => |name| with(name, M, "adamw", "implementation = \"fused\"");
    e_mlp_m_setnone0_sgd => |name| zeroing(name, M, "sgd");
    e_mlp_m_setnone0_adamw => |name| zeroing(name, M, "adamw");
    e_mlp_m_accum4_adamw => |name| Program { head: "accumulate = 4", ..PLAIN }.check(name, M, "adamw");
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
