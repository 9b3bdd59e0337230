//! Memory profile that a run is counted by, and the environment that PyTorch is assumed to run in.

use lab_base::backends::Entry;
use lab_base::error::{Error, Result};
use lab_results::Premise;
use memcore::Profile;
use memcore::profile::Convolution;

use super::choices::Variable;
use super::spec::{Convolutions, ProfileSpec, RunSpec};
use super::target::Target;

/// The prefix of a backend whose own workspaces are counted.
const NATIVE: &str = "native:";

/// Variables by which PyTorch and its libraries size workspaces.
const VARIABLES: [&str; 4] = [
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    "TORCH_CUBLAS_WORKSPACE_CACHE",
];

impl ProfileSpec {
    fn variables(&self) -> &[Variable] {
        self.env.as_deref().unwrap_or_default()
    }
}

/// Returns the target with the run's profile, which counts what operators take, and with the card's multiprocessors if they are known.
///
/// # Errors
/// An unknown profile or variable; a backend's own workspaces on a device of another one.
pub(super) fn counted(target: Target, spec: &RunSpec, backends: &'static [Entry]) -> Result<Target> {
    let like = spec.like();
    let target = target.with_profile(profile(&like, spec)?);
    match like.strip_prefix(NATIVE) {
        Some(backend) => target.with_workspaces_of(backend, backends),
        None => Ok(target),
    }
}

fn profile(like: &str, spec: &RunSpec) -> Result<Profile> {
    let ours = like.strip_prefix(NATIVE).map(|_| Profile { name: like.into(), ..Profile::native() });
    let unknown = || match Profile::nearest(like) {
        Some(nearest) => Error::usage("like", nearest.to_string()),
        None => Error::usage("like", format!("unknown profile {like:?}")),
    };
    let mut profile = ours.or_else(|| Profile::named(like)).ok_or_else(unknown)?;
    if let Some(workspace) = spec.profile.cudnn_workspace {
        profile.convolution = Convolution::Cudnn { workspace_bytes: workspace.0 };
    }
    match &spec.profile.convolutions {
        Convolutions::AsProfiled => {}
        Convolutions::Copying => profile.convolutions_copy = true,
        Convolutions::Named(workspaces) => {
            // Those of other calls, such as attention.
            let workspace_bytes = spec.profile.cudnn_workspace.map_or(0, |bytes| bytes.0);
            profile.convolution = Convolution::Cudnn { workspace_bytes };
            profile.convolution_workspaces = Some(workspaces.clone());
        }
    }
    profile.channels_last = spec.shape.channels_last;
    let profile = in_environment(profile, spec.profile.variables())?;
    Ok(match spec.multiprocessors() {
        Some(count) => profile.on_card(count.into()),
        None => profile,
    })
}

fn in_environment(profile: Profile, env: &[Variable]) -> Result<Profile> {
    if let (Some(first), None) = (env.first(), profile.compute_capability) {
        let problem = format!("{}: profile {} is not a PyTorch's; --like names one", first.name, profile.name);
        return Err(Error::usage("env", problem));
    }
    env.iter().try_fold(profile, |profile, Variable { name, value }| {
        if !VARIABLES.contains(&name.as_str()) {
            let instead = match name.as_str() {
                "PYTORCH_ALLOC_CONF" | "PYTORCH_CUDA_ALLOC_CONF" => "--alloc-conf takes its value".into(),
                _ => format!("known: {}", VARIABLES.join(", ")),
            };
            return Err(Error::usage("env", format!("{name}: vramlab does not support it; {instead}")));
        }
        profile.with_environment(name, value).map_err(|error| Error::usage("env", Error::from(error).to_string()))
    })
}

/// Premises about the environment: the given variables, and those that are set here but ignored.
pub(super) fn environment(spec: &ProfileSpec) -> Vec<Premise> {
    let env = spec.variables();
    let premise = |value: String, source: String| Premise { name: "environment".into(), value, source };
    let given = env.iter().map(|variable| premise(variable.to_string(), "--env".into()));
    let here = |name: &&&str| std::env::var_os(**name).is_some() && !env.iter().any(|given| given.name == **name);
    let not_taken = VARIABLES.iter().filter(here);
    let not_taken =
        not_taken.map(|name| premise((*name).into(), format!("set here, not taken; --env {name}=VALUE takes it")));
    given.chain(not_taken).collect()
}
