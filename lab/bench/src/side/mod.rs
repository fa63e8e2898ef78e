//! The sides: each a small file that says how to serve and how to connect.
//!
//! A side whose calls run on tokio implements [`AsyncSide`] and gets everything else from here. To add one: a value
//! of [`Side`], a file, and an arm in each `match` below.

pub(crate) mod floor;
#[cfg(feature = "iceoryx2")]
pub(crate) mod iceoryx2;
mod pairs;
mod pool;
pub(crate) mod session;
pub(crate) mod stub;
pub(crate) mod tollfree;
pub(crate) mod tollfree_blocking;
pub(crate) mod tollfree_direct;
mod tollfree_ref;
pub(crate) mod tollfree_shortcut;
mod tollfree_upgrade;
mod tollfree_view;
pub(crate) mod tonic_tcp;
pub(crate) mod tonic_unix;
mod turns;

use std::future::Future;
use std::path::Path;

use crate::BenchError;
use crate::fault;
use crate::idle;
use crate::load::{self, EchoCall};
use crate::order::{self, Load, Measured, Serve, Serving};
use crate::peer::Starter;
use crate::plan::{Case, Side};

use self::session::Session;
use self::tollfree::{Tollfree, TollfreePark};
use self::tollfree_direct::TollfreeDirect;
use self::tollfree_ref::TollfreeRef;
use self::tollfree_shortcut::TollfreeShortcut;
use self::tollfree_upgrade::TollfreeUpgrade;
use self::tollfree_view::{TollfreeView, TollfreeViewPool};
use self::tonic_tcp::TonicTcp;
use self::tonic_unix::TonicUnix;

/// This build has none: [`Side::missing`] says so before anything is asked of it.
#[cfg(not(feature = "iceoryx2"))]
pub(crate) mod iceoryx2 {
    use super::{Load, Measured, Path, Serve, Serving};

    pub(super) fn serve(_: &Serve, _: impl FnOnce(Serving)) -> Result<(), String> {
        Err("it is not in this build".to_owned())
    }

    pub(super) fn measure(_: &Load) -> Result<Measured, String> {
        Err("it is not in this build".to_owned())
    }

    pub(crate) fn sweep(_: &Path) -> Result<(), String> {
        Ok(())
    }
}

/// A side whose calls run on tokio. Errors are in words; the side's name is put before them.
trait AsyncSide {
    /// What calls it.
    type Caller: EchoCall;

    /// Serves echo calls until the process ends, and calls `ready` once clients may connect.
    fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> impl Future<Output = Result<(), String>>;

    /// Makes a connection of its own to a server's address, for a case's bodies and metadata.
    fn connect(address: &str, case: Case) -> impl Future<Output = Result<Self::Caller, String>>;
}

/// Serves a side until the end of the process, or until it fails.
pub(crate) fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), BenchError> {
    match order.case.side {
        Side::Floor => floor::serve(order, ready).map_err(failed(Side::Floor)),
        Side::Iceoryx2 => iceoryx2::serve(order, ready).map_err(failed(Side::Iceoryx2)),
        Side::Session => serve_async::<Session>(order, ready),
        Side::TollfreeDirect => serve_async::<TollfreeDirect>(order, ready),
        Side::TollfreeView => serve_async::<TollfreeView>(order, ready),
        Side::TollfreeViewPool => serve_async::<TollfreeViewPool>(order, ready),
        Side::TollfreeRef => serve_async::<TollfreeRef>(order, ready),
        Side::TollfreeBlocking => {
            tollfree_blocking::serve(order, ready).map_err(failed(Side::TollfreeBlocking))
        }
        Side::Tollfree => serve_async::<Tollfree>(order, ready),
        Side::TollfreePark => serve_async::<TollfreePark>(order, ready),
        Side::TollfreeUpgrade => serve_async::<TollfreeUpgrade>(order, ready),
        Side::TollfreeShortcut => serve_async::<TollfreeShortcut>(order, ready),
        Side::TonicUnix => serve_async::<TonicUnix>(order, ready),
        Side::TonicTcp => serve_async::<TonicTcp>(order, ready),
    }
}

/// Calls a side and measures.
pub(crate) fn measure(load: &Load) -> Result<Measured, BenchError> {
    match load.case.side {
        Side::Floor => floor::measure(load).map_err(failed(Side::Floor)),
        Side::Iceoryx2 => iceoryx2::measure(load).map_err(failed(Side::Iceoryx2)),
        Side::Session => measure_async::<Session>(load),
        Side::TollfreeDirect => measure_async::<TollfreeDirect>(load),
        Side::TollfreeView => measure_async::<TollfreeView>(load),
        Side::TollfreeViewPool => measure_async::<TollfreeViewPool>(load),
        Side::TollfreeRef => measure_async::<TollfreeRef>(load),
        Side::TollfreeBlocking => tollfree_blocking::measure(load).map_err(failed(Side::TollfreeBlocking)),
        Side::Tollfree => measure_async::<Tollfree>(load),
        Side::TollfreePark => measure_async::<TollfreePark>(load),
        Side::TollfreeUpgrade => measure_async::<TollfreeUpgrade>(load),
        Side::TollfreeShortcut => measure_async::<TollfreeShortcut>(load),
        Side::TonicUnix => measure_async::<TonicUnix>(load),
        Side::TonicTcp => measure_async::<TonicTcp>(load),
    }
}

/// Removes what a side's processes have left behind outside of their directory, when both are gone.
pub(crate) fn sweep(side: Side, dir: &Path) -> Result<(), BenchError> {
    match side {
        Side::Iceoryx2 => iceoryx2::sweep(dir).map_err(failed(side)),
        _ => Ok(()),
    }
}

/// Opens sessions of a side and holds them until the end of the process.
pub(crate) fn hold(order: &idle::Hold, starter: &Starter) -> Result<(), BenchError> {
    match order.case.side {
        Side::Session => hold_async::<Session>(order, starter),
        Side::TollfreeDirect => hold_async::<TollfreeDirect>(order, starter),
        Side::TollfreeView => hold_async::<TollfreeView>(order, starter),
        Side::TollfreeViewPool => hold_async::<TollfreeViewPool>(order, starter),
        Side::TollfreeRef => hold_async::<TollfreeRef>(order, starter),
        Side::Tollfree => hold_async::<Tollfree>(order, starter),
        Side::TollfreePark => hold_async::<TollfreePark>(order, starter),
        Side::TollfreeUpgrade => hold_async::<TollfreeUpgrade>(order, starter),
        Side::TollfreeShortcut => hold_async::<TollfreeShortcut>(order, starter),
        Side::TonicUnix => hold_async::<TonicUnix>(order, starter),
        Side::TonicTcp => hold_async::<TonicTcp>(order, starter),
        side @ (Side::Floor | Side::Iceoryx2 | Side::TollfreeBlocking) => {
            Err(failed(side)("its sessions are not held by a runtime".to_owned()))
        }
    }
}

/// Calls a side until the starter says stop, whatever becomes of the server.
pub(crate) fn call_on(case: Case, address: &str, starter: &Starter) -> Result<(), BenchError> {
    match case.side {
        Side::TollfreeDirect => call_on_async::<TollfreeDirect>(case, address, starter),
        Side::Tollfree => call_on_async::<Tollfree>(case, address, starter),
        Side::TollfreePark => call_on_async::<TollfreePark>(case, address, starter),
        Side::TonicUnix => call_on_async::<TonicUnix>(case, address, starter),
        side => Err(failed(side)("its client does not connect again by itself".to_owned())),
    }
}

fn call_on_async<S: AsyncSide>(case: Case, address: &str, starter: &Starter) -> Result<(), BenchError> {
    let calls = async {
        let caller = S::connect(address, case).await?;
        fault::call_on(caller, starter).await
    };
    order::runtime(case.runtime)?.block_on(calls).map_err(failed(case.side))
}

fn serve_async<S: AsyncSide>(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), BenchError> {
    order::runtime(order.case.runtime)?.block_on(S::serve(order, ready)).map_err(failed(order.case.side))
}

fn measure_async<S: AsyncSide>(load: &Load) -> Result<Measured, BenchError> {
    let calls = async {
        let caller = S::connect(&load.address, load.case).await?;
        load::run(caller, load).await
    };
    order::runtime(load.case.runtime)?.block_on(calls).map_err(failed(load.case.side))
}

fn hold_async<S: AsyncSide>(order: &idle::Hold, starter: &Starter) -> Result<(), BenchError> {
    let runtime = order::runtime(order.case.runtime)?;
    idle::wait_for_go(starter)?;
    let held = async {
        let mut held = Vec::with_capacity(order.sessions);
        for nth in 1..=order.sessions {
            let session = async {
                let caller = S::connect(&order.address, order.case).await?;
                load::check_echo(caller.clone(), order.case.size).await?;
                Ok(caller)
            };
            let session: Result<_, String> = session.await;
            held.push(session.map_err(|error| format!("session {nth}: {error}"))?);
        }
        starter.say(idle::Opened { sessions: held.len() });
        // The runtime must go on turning: what idle sessions do there is what is measured.
        std::future::pending::<Result<(), String>>().await
    };
    runtime.block_on(held).map_err(failed(order.case.side))
}

fn failed(side: Side) -> impl FnOnce(String) -> BenchError {
    move |what| BenchError::Side { side: side.name(), what }
}
