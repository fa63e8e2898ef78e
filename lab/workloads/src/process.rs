//! A process of a workload from the inside: what it is told, and what it answers.

use serde::{Deserialize, Serialize};
use tollfree_bench::BenchError;
use tollfree_bench::harness::take_order;
use tollfree_bench::peer::Starter;

use crate::carry;
use crate::load::{LoadOrder, Run};
use crate::seat::{Seat, SeatOrder};
use crate::services::Part;

/// A process's first order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) seat: SeatOrder,
    pub(crate) what: What,
}

/// What it is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum What {
    /// Serve a part, calling others at their addresses. Answers [`Serving`].
    Serve { part: Part, to: Vec<String> },
    /// Be the gateway that services attach to. Answers [`Serving`], with the addresses for the world and for them.
    Gateway,
    /// Call, and measure. Answers [`Ready`].
    Load(LoadOrder),
}

/// A service's first words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Serving {
    pub(crate) address: String,
    /// Where services attach, at a gateway.
    pub(crate) meeting_place: Option<String>,
}

/// The load generator's first words: it is connected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {}

/// Orders that follow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Tell what was counted so far. Answers [`Tally`](crate::Tally).
    Tally,
    /// Tell how long messages were so far. Answers [`Sizes`](crate::Sizes).
    Sizes,
    /// Make calls (load generator only). Answers [`Measured`](crate::load::Measured).
    Run(Run),
}

/// Answers the orders of the process that started this one, until it is gone.
pub(crate) fn attend() -> Result<(), BenchError> {
    let mut starter = Some(Starter::listen());
    let done = carry_out(&mut starter);
    match (&done, starter) {
        (Err(error), Some(starter)) => starter.fail(error),
        // The starter hears of it by our end, and the user by our words.
        (Err(error), None) => eprintln!("tollfree: {error}"),
        (Ok(()), _) => {}
    }
    done
}

fn carry_out(starter: &mut Option<Starter>) -> Result<(), BenchError> {
    let order: Order = take_order(starter.as_ref().expect("nobody took it yet"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|source| BenchError::System { what: "cannot start the async runtime", source })?;
    let side = order.seat.side.name();
    let in_words = |what: String| BenchError::Side { side, what };
    let seat = Seat::take(&order.seat).map_err(in_words)?;
    let done = match &order.what {
        What::Serve { part, to } => {
            let answering = seat.clone();
            let ready = |address| {
                let serving = Serving { address, meeting_place: None };
                answer(starter.take().expect("it is ready once"), answering, serving);
            };
            runtime.block_on(part.play(&seat, to, ready))
        }
        What::Gateway => {
            let answering = seat.clone();
            let ready = |serving| answer(starter.take().expect("it is ready once"), answering, serving);
            carry::gateway(&seat, ready)
        }
        What::Load(load) => {
            runtime.block_on(load.attend(&seat, starter.as_ref().expect("nobody takes it from here")))
        }
    };
    done.map_err(in_words)
}

/// Says where a service is, and from then on, in a thread of its own, what it has counted.
fn answer(starter: Starter, seat: Seat, serving: Serving) {
    starter.say(serving);
    std::thread::spawn(move || {
        loop {
            match starter.hear() {
                Ok(Ask::Tally) => starter.say(seat.tally()),
                Ok(Ask::Sizes) => starter.say(seat.counters.sizes.read()),
                Ok(Ask::Run(_)) | Err(_) => return,
            }
        }
    });
}
