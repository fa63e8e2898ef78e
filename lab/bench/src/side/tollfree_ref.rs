//! Tollfree's own stubs with a pool: the bodies of requests and replies go by ref, however short they are.
//!
//! Neither end has them in the pool beforehand, and both want them in private memory in the end: what is compared is the
//! way between. Where it gets shorter than through the session is what [`tollfree::REF_THRESHOLD_DEFAULT`] says.

use tollfree::{Channel, Server};

use super::tollfree::serve;
use super::tollfree_direct::{Caller, caller, with_service};
use super::{AsyncSide, pool};
use crate::order::{Serve, Serving};
use crate::plan::Case;

pub(super) struct TollfreeRef;

impl AsyncSide for TollfreeRef {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let server =
            with_service(Server::builder().pool(pool::create(&order.dir)?).ref_threshold(1), order.case);
        serve(server, &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Caller, String> {
        caller(Channel::builder(address).pool(pool::join(address)?).ref_threshold(1), case).await
    }
}
