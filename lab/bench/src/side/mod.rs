//! The sides: each a small file that says how to serve and how to connect.
//!
//! A side whose calls run on tokio implements [`AsyncSide`] and gets everything else from here. To add one: a value
//! of [`Side`], a file, and an arm in each `match` below.

pub(crate) mod c;
pub(crate) mod cpp;
pub(crate) mod floor;
pub(crate) mod go;
#[cfg(feature = "iceoryx2")]
pub(crate) mod iceoryx2;
mod one_loop;
mod pairs;
mod pool;
pub(crate) mod program;
pub(crate) mod python;
mod rust_to_go;
pub(crate) mod session;
pub(crate) mod stub;
mod threads;
pub(crate) mod tollfree;
pub(crate) mod tollfree_blocking;
pub(crate) mod tollfree_direct;
pub(crate) mod tollfree_direct_connection;
mod tollfree_ref;
mod tollfree_upgrade;
mod tollfree_view;
mod tonic_blocking;
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

use self::rust_to_go::RustToGo;
use self::session::Session;
use self::tollfree::{Tollfree, TollfreePark};
use self::tollfree_direct::TollfreeDirect;
use self::tollfree_direct_connection::TollfreeDirectConnection;
use self::tollfree_ref::TollfreeRef;
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

/// Does something with a side whose calls run on tokio, or the other thing with another one.
macro_rules! on_tokio {
    ($side:expr, $run:ident($($argument:expr),*), $other:expr) => {
        match $side {
            Side::Session => $run::<Session>($($argument),*),
            Side::TollfreeDirect => $run::<TollfreeDirect>($($argument),*),
            Side::TollfreeView => $run::<TollfreeView>($($argument),*),
            Side::TollfreeViewPool => $run::<TollfreeViewPool>($($argument),*),
            Side::TollfreeRef => $run::<TollfreeRef>($($argument),*),
            Side::Tollfree => $run::<Tollfree>($($argument),*),
            Side::TollfreePark => $run::<TollfreePark>($($argument),*),
            Side::TollfreeUpgrade => $run::<TollfreeUpgrade>($($argument),*),
            Side::TollfreeDirectConnection => $run::<TollfreeDirectConnection>($($argument),*),
            Side::TonicUnix => $run::<TonicUnix>($($argument),*),
            Side::TonicTcp => $run::<TonicTcp>($($argument),*),
            Side::RustToGo => $run::<RustToGo>($($argument),*),
            side @ (Side::Floor
            | Side::Iceoryx2
            | Side::Loop
            | Side::Threads
            | Side::TollfreeBlocking
            | Side::TollfreeThreads
            | Side::TonicBlocking
            | Side::C
            | Side::Cpp
            | Side::CppStock
            | Side::GrpcCpp
            | Side::Go
            | Side::GoInline
            | Side::GoDirect
            | Side::GoToRust
            | Side::GrpcGo
            | Side::Python
            | Side::PythonInline
            | Side::PythonToRust
            | Side::PythonAioToRust
            | Side::PythonAio
            | Side::PythonRef
            | Side::PythonRefToRust
            | Side::Grpcio
            | Side::GrpcioAio) => $other(side),
        }
    };
}

/// Serves a side until the end of the process, or until it fails.
pub(crate) fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), BenchError> {
    on_tokio!(order.case.side, serve_async(order, ready), |side| match side {
        Side::Floor => floor::serve(order, ready),
        Side::Iceoryx2 => iceoryx2::serve(order, ready),
        Side::Loop => one_loop::serve(order, ready),
        Side::Threads => threads::serve(order, ready),
        Side::TonicBlocking => return serve_async::<TonicUnix>(order, ready),
        Side::C => c::serve(order, ready),
        Side::Cpp | Side::CppStock | Side::GrpcCpp => cpp::serve(order, ready),
        Side::GoToRust | Side::PythonToRust | Side::PythonAioToRust => {
            return serve_async::<TollfreeDirect>(order, ready);
        }
        Side::PythonRefToRust => return serve_async::<TollfreeRef>(order, ready),
        Side::Python
        | Side::PythonInline
        | Side::PythonAio
        | Side::PythonRef
        | Side::Grpcio
        | Side::GrpcioAio => python::serve(order, ready),
        Side::Go | Side::GoInline | Side::GoDirect | Side::GrpcGo => go::serve(order, ready),
        _ => tollfree_blocking::serve(order, ready),
    }
    .map_err(failed(side)))
}

/// Calls a side and measures.
pub(crate) fn measure(load: &Load) -> Result<Measured, BenchError> {
    on_tokio!(load.case.side, measure_async(load), |side| match side {
        Side::Floor => floor::measure(load),
        Side::Iceoryx2 => iceoryx2::measure(load),
        Side::Loop => one_loop::measure(load),
        Side::Threads => threads::measure(load),
        Side::TonicBlocking => tonic_blocking::measure(load),
        Side::TollfreeThreads => tollfree_blocking::measure_shared(load),
        Side::C => c::measure(load),
        Side::Cpp | Side::CppStock | Side::GrpcCpp => cpp::measure(load),
        Side::Go | Side::GoInline | Side::GoDirect | Side::GoToRust | Side::GrpcGo => go::measure(load),
        Side::Python
        | Side::PythonInline
        | Side::PythonToRust
        | Side::PythonAioToRust
        | Side::PythonAio
        | Side::PythonRef
        | Side::PythonRefToRust
        | Side::Grpcio
        | Side::GrpcioAio => python::measure(load),
        _ => tollfree_blocking::measure(load),
    }
    .map_err(failed(side)))
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
    let refused = |side| Err(failed(side)("its sessions are not held by a runtime".to_owned()));
    on_tokio!(order.case.side, hold_async(order, starter), refused)
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
    order::block_on(&order::runtime(case.runtime)?, calls).map_err(failed(case.side))
}

fn serve_async<S: AsyncSide>(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), BenchError> {
    order::block_on(&order::runtime(order.case.runtime)?, S::serve(order, ready))
        .map_err(failed(order.case.side))
}

fn measure_async<S: AsyncSide>(load: &Load) -> Result<Measured, BenchError> {
    let calls = async {
        let caller = S::connect(&load.address, load.case).await?;
        load::run(caller, load).await
    };
    order::block_on(&order::runtime(load.case.runtime)?, calls).map_err(failed(load.case.side))
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
    order::block_on(&runtime, held).map_err(failed(order.case.side))
}

fn failed(side: Side) -> impl FnOnce(String) -> BenchError {
    move |what| BenchError::Side { side: side.name(), what }
}
