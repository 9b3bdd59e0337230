//! A network from a file on a rank of a divided step: the rank builds it, and the step that is made for the rank runs it with all of its inputs.

use std::sync::{Arc, Mutex, PoisonError};

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Defaults, Places, Task};
use memcore::nn::{Init, Module, Parameter};
use memcore::{DType, Tensor};

/// A network, and what was built of it last.
pub(crate) struct OnRank<'a, A, N> {
    model: &'a A,
    network: Box<Build<'a, N>>,
    /// The number of pieces that the network's parameters are made for; `None` for the model's own pieces.
    pieces: Option<usize>,
    built: Mutex<Option<Arc<N>>>,
}

/// Builds a network, the parameters of each piece with an `Init` of its own.
type Build<'a, N> = dyn Fn(&Places<'_>) -> memcore::Result<N> + Send + Sync + 'a;

impl<'a, A: Sync, N: 'a> OnRank<'a, A, N> {
    /// `network` builds it through the rank's parameters.
    pub(crate) fn new(model: &'a A, network: fn(&A, &Init) -> memcore::Result<N>) -> Self {
        Self { model, network: Box::new(move |at| network(model, &at(0))), pieces: None, built: Mutex::default() }
    }

    /// `network` builds it through the rank's parameters of each of so many pieces.
    pub(crate) fn in_pieces(
        model: &'a A,
        pieces: usize,
        network: impl Fn(&Places<'_>) -> memcore::Result<N> + Send + Sync + 'a,
    ) -> Self {
        Self { model, network: Box::new(network), pieces: Some(pieces), built: Mutex::default() }
    }

    fn build_at(&self, at: &Places<'_>) -> memcore::Result<Arc<N>> {
        // A network that is built in steps frees what the step before left.
        drop(self.built.lock().unwrap_or_else(PoisonError::into_inner).take());
        let network = Arc::new((self.network)(at)?);
        *self.built.lock().unwrap_or_else(PoisonError::into_inner) = Some(network.clone());
        Ok(network)
    }

    /// Returns the network that the rank built.
    ///
    /// # Errors
    /// None was built.
    pub(crate) fn take(&self) -> Result<Arc<N>> {
        let built = self.built.lock().unwrap_or_else(PoisonError::into_inner).take();
        built.ok_or_else(|| Error::usage("data-parallel", "the network was not built"))
    }
}

/// What a rank holds of the network. Its step runs the network itself.
struct Held<N>(#[expect(dead_code, reason = "owns the tensors, as the module of any other network does")] Arc<N>);

impl<N: Send + Sync + 'static> Module for Held<N> {
    fn forward(&self, _: &Tensor) -> memcore::Result<Tensor> {
        Err(memcore::Error::invalid("forward", "the step of this network runs it with all of its inputs"))
    }
}

impl<A: Architecture, N: Send + Sync + 'static> Architecture for OnRank<'_, A, N> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn description(&self) -> String {
        self.model.description()
    }

    fn task(&self) -> Task {
        self.model.task()
    }

    fn defaults(&self) -> Defaults {
        self.model.defaults()
    }

    fn check(&self, batch: usize, weights: DType) -> Result<()> {
        self.model.check(batch, weights)
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        Ok(Box::new(Held(self.build_at(&|_| init.clone())?)))
    }

    fn indivisible(&self) -> Option<&'static str> {
        self.pieces.map_or_else(|| self.model.indivisible(), |_| None)
    }

    /// Those that the network is built for, else the model's own. Their parameters are in the order of those of [`build`](Architecture::build): they tell what is
    /// divided together.
    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let Some(count) = self.pieces else { return self.model.pieces(at) };
        let network = self.build_at(at)?;
        Ok((0..count).map(|_| Box::new(Held(network.clone())) as Box<dyn Module>).collect())
    }

    fn shares_ends(&self) -> bool {
        self.model.shares_ends()
    }

    fn one_length(&self) -> Option<&'static str> {
        self.model.one_length()
    }

    fn not_evaluated(&self) -> Option<String> {
        self.model.not_evaluated()
    }

    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        self.model.optimizer_order(parameters)
    }
}
