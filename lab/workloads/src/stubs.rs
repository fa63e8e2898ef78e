//! The generated stubs of both stacks under one name each: a handler is written once, and a caller doesn't see which stack
//! carries its calls.

use std::future::Future;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::direct::*;
use crate::seat::Seat;
use crate::tally::Counters;
use crate::{Side, carry, direct, share, stock};

/// A handler as generated servers of both stacks take it.
struct Handler<H> {
    handler: Arc<H>,
    counters: Arc<Counters>,
}

/// For a service: what its handlers implement, its client, and a function that serves a handler.
macro_rules! service {
    (
        $service:ident: $handle:ident, $serve:ident, $client_mod:ident::$client:ident, $server_mod:ident::$server:ident {
            $($method:ident: $in:ident => $out:ident),+ $(,)?
        }
    ) => {
        /// What a process of the service does with its calls.
        pub(crate) trait $handle: Send + Sync + 'static {
            $(fn $method(&self, request: $in) -> impl Future<Output = Result<$out, Status>> + Send;)+
        }

        /// Calls the service.
        #[derive(Clone)]
        pub(crate) enum $client {
            Tonic(stock::$client_mod::$client<tonic::transport::Channel>),
            Tollfree(direct::$client_mod::$client<tollfree::Channel>),
        }

        impl $client {
            /// Makes a connection of its own.
            pub(crate) async fn connect(seat: &Seat, address: &str) -> Result<Self, String> {
                let limit = seat.message_len_max;
                if seat.side.speaks_http2(address) {
                    let client = stock::$client_mod::$client::new(carry::connect_tonic(address).await?);
                    return Ok(Self::Tonic(client.max_decoding_message_size(limit)));
                }
                let client = direct::$client_mod::$client::new(carry::connect_tollfree(seat, address).await?);
                match tollfree::Generated::way(&client) {
                    tollfree::Way::Direct => Ok(Self::Tollfree(client.max_decoding_message_size(limit))),
                    way => Err(format!("calls to {address} would go {way}")),
                }
            }

            $(pub(crate) async fn $method(&self, request: $in) -> Result<$out, Status> {
                let reply = async {
                    match self {
                        Self::Tonic(client) => client.clone().$method(request).await,
                        Self::Tollfree(client) => client.clone().$method(request).await,
                    }
                };
                share::call(reply).await.map(Response::into_inner)
            })+
        }

        #[tonic::async_trait]
        impl<H: $handle> stock::$server_mod::$service for Handler<H> {
            $(async fn $method(&self, request: Request<$in>) -> Result<Response<$out>, Status> {
                let work = |request| self.handler.$method(request);
                share::handler(&self.counters, request.into_inner(), work).await.map(Response::new)
            })+
        }

        #[tonic::async_trait]
        impl<H: $handle> direct::$server_mod::$service for Handler<H> {
            $(async fn $method(&self, request: Request<$in>) -> Result<Response<$out>, Status> {
                let work = |request| self.handler.$method(request);
                share::handler(&self.counters, request.into_inner(), work).await.map(Response::new)
            })+
        }

        /// Serves a handler until the end of the process, and says where as soon as clients may connect.
        pub(crate) async fn $serve<H: $handle>(
            handler: H,
            seat: &Seat,
            ready: impl FnOnce(String),
        ) -> Result<(), String> {
            let handler = Handler { handler: Arc::new(handler), counters: seat.counters.clone() };
            let limit = seat.message_len_max;
            if seat.side == Side::Tonic {
                let service = stock::$server_mod::$server::new(handler).max_decoding_message_size(limit);
                let router = tonic::transport::Server::builder().add_service(service);
                carry::serve_tonic(router, seat, ready).await
            } else {
                let service = direct::$server_mod::$server::new(handler).max_decoding_message_size(limit);
                let server = carry::server(seat).add_service(service);
                match seat.side.has_gateway() {
                    true => carry::attach(server, seat, ready).await,
                    false => carry::serve_tollfree(server, seat, ready).await,
                }
            }
        }
    };
}

service! {
    Arrays: HandleArrays, serve_arrays, arrays_client::ArraysClient, arrays_server::ArraysServer {
        sum: Array => Total,
    }
}

service! {
    Echo: HandleEcho, serve_echo, echo_client::EchoClient, echo_server::EchoServer {
        call: Block => Block,
    }
}

service! {
    Images: HandleImages, serve_images, images_client::ImagesClient, images_server::ImagesServer {
        process: ImageRequest => ImageReply,
    }
}

service! {
    Social: HandleSocial, serve_social, social_client::SocialClient, social_server::SocialServer {
        compose_post: Post => PostId,
        read_home_timeline: TimelineRequest => Timeline,
        read_user_timeline: TimelineRequest => Timeline,
    }
}

service! {
    Composer: HandleComposer, serve_composer, composer_client::ComposerClient, composer_server::ComposerServer {
        compose: Post => PostId,
    }
}

service! {
    Posts: HandlePosts, serve_posts, posts_client::PostsClient, posts_server::PostsServer {
        store: Post => PostId,
        fetch: PostIds => Timeline,
    }
}

service! {
    Timelines: HandleTimelines, serve_timelines, timelines_client::TimelinesClient, timelines_server::TimelinesServer {
        append: Entry => Appended,
        read: TimelineRequest => Timeline,
    }
}

service! {
    Graph: HandleGraph, serve_graph, graph_client::GraphClient, graph_server::GraphServer {
        followers: User => Users,
    }
}

service! {
    HotelDesk: HandleHotelDesk, serve_hotel_desk, hotel_desk_client::HotelDeskClient, hotel_desk_server::HotelDeskServer {
        search: HotelQuery => HotelList,
        reserve: HotelBooking => HotelBooked,
    }
}

service! {
    HotelSearch: HandleHotelSearch, serve_hotel_search, hotel_search_client::HotelSearchClient, hotel_search_server::HotelSearchServer {
        nearby: HotelQuery => HotelRates,
    }
}

service! {
    HotelGeo: HandleHotelGeo, serve_hotel_geo, hotel_geo_client::HotelGeoClient, hotel_geo_server::HotelGeoServer {
        near: HotelQuery => HotelIds,
    }
}

service! {
    HotelRate: HandleHotelRate, serve_hotel_rate, hotel_rate_client::HotelRateClient, hotel_rate_server::HotelRateServer {
        rates: HotelNight => HotelRates,
    }
}

service! {
    HotelProfile: HandleHotelProfile, serve_hotel_profile, hotel_profile_client::HotelProfileClient, hotel_profile_server::HotelProfileServer {
        profiles: HotelIds => HotelList,
    }
}

service! {
    HotelReservation: HandleHotelReservation, serve_hotel_reservation, hotel_reservation_client::HotelReservationClient, hotel_reservation_server::HotelReservationServer {
        vacant: HotelNight => HotelIds,
        book: HotelBooking => HotelBooked,
    }
}
