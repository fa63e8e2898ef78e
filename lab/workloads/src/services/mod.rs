//! The parts that processes play.

mod arrays;
mod codec;
mod echo;
pub(crate) mod hotel;
mod hotel_objects;
mod images;
mod social;

use serde::{Deserialize, Serialize};

use crate::seat::Seat;
use crate::side::Side;
use crate::stubs::*;

pub(crate) use images::TOKEN;
pub(crate) use social::{POPULAR_COUNT, USER_COUNT};

/// What the workers of the image pipeline do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Read every byte, and give the image back as it is: transfer is all there is.
    Touch,
    /// Decode it and encode it anew, with a real image library.
    Codec,
}

/// The part of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// A call in a chain: passes the array on.
    Hop,
    /// Passes arrays on to the service that has the least to do.
    Balancer,
    /// Reads an array.
    Aggregate,
    Echo,
    Firewall,
    ImageBalancer,
    ImageProcessing,
    Transcoding(Work),
    Compressing(Work),
    SocialBalancer,
    SocialProxy,
    Front,
    Compose,
    UserTimeline,
    HomeTimeline,
    Storage,
    Graph,
    HotelDesk,
    HotelSearch,
    HotelGeo,
    HotelRate,
    /// Descriptions have so many bytes.
    HotelProfile(usize),
    HotelReservation,
}

impl Part {
    /// As processes are called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hop => "hop",
            Self::Balancer | Self::ImageBalancer | Self::SocialBalancer => "balancer",
            Self::Aggregate => "aggregate",
            Self::Echo => "echo",
            Self::Firewall => "firewall",
            Self::ImageProcessing => "image-processing",
            Self::Transcoding(_) => "transcoding",
            Self::Compressing(_) => "compressing",
            Self::SocialProxy => "proxy",
            Self::Front => "front",
            Self::Compose => "compose",
            Self::UserTimeline => "user-timeline",
            Self::HomeTimeline => "home-timeline",
            Self::Storage => "storage",
            Self::Graph => "graph",
            Self::HotelDesk => "desk",
            Self::HotelSearch => "search",
            Self::HotelGeo => "geo",
            Self::HotelRate => "rate",
            Self::HotelProfile(_) => "profile",
            Self::HotelReservation => "reservation",
        }
    }

    /// Whether it passes payloads on without a look at them.
    pub(crate) fn is_mover(self) -> bool {
        use Part::*;
        matches!(
            self,
            Hop | Balancer
                | Firewall
                | ImageBalancer
                | ImageProcessing
                | SocialBalancer
                | SocialProxy
                | Front
                | HotelDesk
        )
    }

    /// Serves until the end of the process, calling those at `to`; tells where as soon as clients may connect.
    pub(crate) async fn play(
        self,
        seat: &Seat,
        to: &[String],
        ready: impl FnOnce(String),
    ) -> Result<(), String> {
        if seat.side == Side::GatewayObjects {
            return hotel_objects::play(self, seat, to, ready).await;
        }
        match self {
            Self::Hop | Self::Balancer => {
                serve_arrays(arrays::Forward::to(seat, to).await?, seat, ready).await
            }
            Self::Aggregate => serve_arrays(arrays::Aggregate, seat, ready).await,
            Self::Echo => serve_echo(echo::Echoing::new(seat), seat, ready).await,
            Self::Firewall => serve_images(images::Firewall::to(seat, only(to)?).await?, seat, ready).await,
            Self::ImageBalancer => serve_images(images::RoundRobin::to(seat, to).await?, seat, ready).await,
            Self::ImageProcessing => {
                let [transcoding, compressing] = exactly(to)?;
                let service = images::Processing::to(seat, transcoding, compressing).await?;
                serve_images(service, seat, ready).await
            }
            Self::Transcoding(work) => {
                serve_images(images::Worker::new(seat, work, codec::transcode), seat, ready).await
            }
            Self::Compressing(work) => {
                serve_images(images::Worker::new(seat, work, codec::compress), seat, ready).await
            }
            Self::SocialBalancer | Self::SocialProxy => {
                serve_social(social::Forward::to(seat, to).await?, seat, ready).await
            }
            Self::Front => serve_social(social::Front::to(seat, exactly(to)?).await?, seat, ready).await,
            Self::Compose => {
                serve_composer(social::Compose::to(seat, exactly(to)?).await?, seat, ready).await
            }
            Self::UserTimeline => {
                serve_timelines(social::UserTimeline::to(seat, only(to)?).await?, seat, ready).await
            }
            Self::HomeTimeline => {
                serve_timelines(social::HomeTimeline::to(seat, exactly(to)?).await?, seat, ready).await
            }
            Self::Storage => serve_posts(social::Storage::new(seat), seat, ready).await,
            Self::Graph => serve_graph(social::Followers, seat, ready).await,
            Self::HotelDesk => {
                serve_hotel_desk(hotel::Desk::to(seat, exactly(to)?).await?, seat, ready).await
            }
            Self::HotelSearch => {
                serve_hotel_search(hotel::Search::to(seat, exactly(to)?).await?, seat, ready).await
            }
            Self::HotelGeo => serve_hotel_geo(hotel::Geo::new(), seat, ready).await,
            Self::HotelRate => serve_hotel_rate(hotel::Rate::new(), seat, ready).await,
            Self::HotelProfile(len) => {
                serve_hotel_profile(hotel::Profile::new(seat, len)?, seat, ready).await
            }
            Self::HotelReservation => serve_hotel_reservation(hotel::Reservation::new(), seat, ready).await,
        }
    }
}

fn exactly<const N: usize>(to: &[String]) -> Result<[&str; N], String> {
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    to.try_into().map_err(|to: Vec<_>| format!("it calls {N} others, and was told of {}", to.len()))
}

fn only(to: &[String]) -> Result<&str, String> {
    exactly(to).map(|[one]: [&str; 1]| one)
}
