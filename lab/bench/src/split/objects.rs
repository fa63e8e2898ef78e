//! The same handlers, which read and build objects in place.

use std::hint::black_box;

use tollfree_processor::typed::{self, Builder, Owned};
use tollfree_processor::{Arenas, BuildError};
use tonic::{Request, Response, Status};

use super::service::Backends;
use crate::message::{Read, walks};
use crate::objects::split_server::Split;
use crate::objects::views::fds::FileDescriptorSet;
use crate::objects::views::hyperprotobench::{M3, M34, M43};
use crate::objects::views::shop::Order;
use crate::objects::views::tollfree::bench::v1::Bytes;
use crate::plan::INFLIGHT_MAX;

/// Longer than any object here.
const OBJECT_LEN_MAX: usize = 64 << 20;

/// Handles calls.
pub(super) struct Objects {
    backends: Backends,
    arenas: Arenas,
}

impl Objects {
    pub(super) fn new(backends: Backends) -> Objects {
        Objects { backends, arenas: Arenas::new(OBJECT_LEN_MAX, INFLIGHT_MAX) }
    }

    fn answer<M: typed::Message>(
        &self,
        fill: impl FnOnce(M::Mut<'_>) -> Result<(), BuildError>,
    ) -> Result<Response<Owned<M>>, Status> {
        let built = || {
            let mut builder = Builder::<M>::new(self.arenas.take())?;
            fill(builder.edit())?;
            builder.freeze()
        };
        built().map(Response::new).map_err(|error: BuildError| Status::resource_exhausted(error.to_string()))
    }
}

/// Reads every field, and builds a reply with the same.
macro_rules! handle {
    ($($method:ident, $message:ident, $build:ident;)+) => {
        #[tonic::async_trait]
        impl Split for Objects {
            async fn echo64(&self, request: Request<Owned<Bytes>>) -> Result<Response<Owned<Bytes>>, Status> {
                self.backends.work();
                Ok(Response::new(request.into_inner()))
            }

            $(
                async fn $method(
                    &self,
                    request: Request<Owned<$message>>,
                ) -> Result<Response<Owned<$message>>, Status> {
                    self.backends.work();
                    let view = request.get_ref().view();
                    black_box(view.read());
                    self.answer(|to| walks::$build(view, to))
                }
            )+
        }
    };
}

handle! {
    m3, M3, build_hyperprotobench_m3;
    m43, M43, build_hyperprotobench_m43;
    m34, M34, build_hyperprotobench_m34;
    order, Order, build_shop_order;
    fds, FileDescriptorSet, build_fds_filedescriptorset;
}
