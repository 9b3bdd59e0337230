//! First states that a recurrent module makes for itself. `nn.LSTM`, `nn.GRU` and `nn.RNN` make them in the type of their input
//! (`torch/nn/modules/rnn.py`); a graph has the type that they had in the export, which is another one under autocast and in another precision.

use std::sync::Arc;

use super::operators::{Operator, Property};
use super::program::{Arg, Program, Slot};

/// Lets such states take the type of the input of their module. Those that the user's program gives the module keep their type.
pub(super) fn follow_inputs(program: &mut Program) {
    // A state, the input, and the call of the module that has both.
    let mut states: Vec<(Slot, Slot, String)> = Vec::new();
    for node in program.nodes.iter().filter(|node| Operator::numbered(node.operator).is(Property::Layers)) {
        let argument =
            |wanted: &str| node.arguments.iter().find(|(name, _)| name == wanted).map(|(_, argument)| argument);
        let Some(Arg::Value(input)) = argument("input") else { continue };
        let given = match argument("hx") {
            Some(Arg::Value(state)) => vec![*state],
            Some(Arg::Values(states)) => states.iter().copied().flatten().collect(),
            _ => Vec::new(),
        };
        states.extend(given.into_iter().map(|state| (state, *input, node.modules.clone())));
    }
    for node in &mut program.nodes {
        let made = node.outputs.first().map(|output| output.slot).filter(|_| node.target == "zeros.default");
        let of_module = |(state, _, modules): &&(Slot, Slot, String)| Some(*state) == made && *modules == node.modules;
        node.typed_as = states.iter().find(of_module).map(|(_, input, _)| *input);
        for (_, argument) in &mut node.arguments {
            if let Arg::Graph(inner) = argument
                && let Some(inner) = Arc::get_mut(inner)
            {
                follow_inputs(inner);
            }
        }
    }
}
