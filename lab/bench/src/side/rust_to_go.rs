//! A client in Rust with Tollfree's own stubs, and a server in Go.

use super::AsyncSide;
use super::go;
use super::tollfree_direct::{Caller, TollfreeDirect};
use crate::order::{Serve, Serving};
use crate::plan::Case;

pub(super) struct RustToGo;

impl AsyncSide for RustToGo {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        go::serve(order, ready)
    }

    async fn connect(address: &str, case: Case) -> Result<Caller, String> {
        TollfreeDirect::connect(go::socket_of(address), case).await
    }
}
