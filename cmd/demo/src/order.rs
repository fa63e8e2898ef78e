//! What the demo tells its server and client processes to do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tollfree_measure::BenchError;
use tollfree_measure::cores::{self, CoreIdx};
use tollfree_measure::peer::Starter;

use super::echo::{self, Calls};
use super::greeter;
use super::tour::{self, Visit};

/// An order to a process started as `demo-peer`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Serve the greeter; answers [`Serving`] once it does.
    Serve(Serve),
    /// Call it over each transport; answers a [`super::Tour`] for each.
    Visit(Visit),
    /// Time echo calls over each transport; answers an [`super::echo::Measured`] for each row and transport.
    Echo(Calls),
}

/// How to serve.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Serve {
    /// Where sockets may be made.
    pub(super) dir: PathBuf,
    pub(super) core: Option<CoreIdx>,
}

/// Where the greeter can be reached.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Serving {
    /// For HTTP/2.
    pub(super) unix: String,
    /// For Tollfree.
    pub(super) shm: String,
}

/// Answers the orders of the process that started this one.
///
/// # Errors
/// What kept the order from being carried out. It was told to the starter already.
pub fn attend() -> Result<(), BenchError> {
    let starter = Starter::listen();
    match starter.hear().map_err(BenchError::Refused).and_then(|order| carry_out(order, &starter)) {
        Ok(()) => starter.wait_for_the_end(),
        Err(error) => {
            starter.fail(&error);
            Err(error)
        }
    }
}

fn carry_out(order: Order, starter: &Starter) -> Result<(), BenchError> {
    let core = match &order {
        Order::Serve(serve) => serve.core,
        Order::Visit(visit) => visit.core,
        Order::Echo(calls) => calls.core,
    };
    core.map_or(Ok(()), cores::pin)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| BenchError::System { what: "cannot start the async runtime", source })?;
    match order {
        Order::Serve(serve) => runtime
            .block_on(greeter::serve(&serve, |serving| starter.say(serving)))
            .map_err(|what| BenchError::Side { side: "greeter", what }),
        Order::Visit(visit) => {
            runtime.block_on(tour::visit(&visit, |tour| starter.say(tour)));
            Ok(())
        }
        Order::Echo(calls) => runtime
            .block_on(echo::call(&calls, |measured| starter.say(measured)))
            .map_err(|what| BenchError::Side { side: "echo", what }),
    }
}
