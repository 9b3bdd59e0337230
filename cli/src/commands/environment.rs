//! The environment that PyTorch is taken to run in: `--env NAME=VALUE`, and nothing of this program's own.

use lab::Error;
use memcore::Profile;

use crate::exit::{Failure, Result};
use lab::results::Premise;

/// What PyTorch and its libraries read about workspaces.
const VARIABLES: [&str; 4] = [
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    "TORCH_CUBLAS_WORKSPACE_CACHE",
];

/// The profile in this environment.
///
/// # Errors
/// Variables that are not known, values that they do not have, a profile without PyTorch's libraries.
pub(super) fn applied(profile: Profile, env: &[(String, String)]) -> Result<Profile> {
    if let (Some((name, _)), None) = (env.first(), profile.compute_capability) {
        let problem = format!("--env {name}: profile {} is not a PyTorch's; --like names one", profile.name);
        return Err(Failure::usage(problem));
    }
    env.iter().try_fold(profile, |profile, (name, value)| {
        if !VARIABLES.contains(&name.as_str()) {
            let instead = match name.as_str() {
                "PYTORCH_ALLOC_CONF" | "PYTORCH_CUDA_ALLOC_CONF" => "--alloc-conf takes its value".into(),
                _ => format!("known: {}", VARIABLES.join(", ")),
            };
            return Err(Failure::usage(format!("--env {name}: not represented; {instead}")));
        }
        profile.with_environment(name, value).map_err(|error| Failure::usage(format!("--env: {}", Error::from(error))))
    })
}

/// As typed.
pub(super) fn written(env: &[(String, String)]) -> Vec<String> {
    env.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// What was given, and what is set where this program runs and was not taken.
pub(super) fn premises(env: &[(String, String)]) -> Vec<Premise> {
    let premise = |value: String, source: String| Premise { name: "environment".into(), value, source };
    let given = written(env).into_iter().map(|value| premise(value, "--env".into()));
    let here = |name: &&&str| std::env::var_os(**name).is_some() && !env.iter().any(|(given, _)| given == **name);
    let not_taken = VARIABLES.iter().filter(here);
    let not_taken =
        not_taken.map(|name| premise((*name).into(), format!("set here, not taken; --env {name}=VALUE takes it")));
    given.chain(not_taken).collect()
}
