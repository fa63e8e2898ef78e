//! The same services with handlers that take objects: requests are passed on as they came, and replies are copied in blocks.

use std::sync::{Arc, LazyLock};

use tollfree::Channel;
use tollfree_processor::typed::{Builder, Message, MessageMut as _, Owned};
use tollfree_processor::{Arenas, BuildError};
use tonic::{Request, Response, Status};

use super::Part;
use super::hotel::{Geo, Profile, Rate, Reservation, is_closed};
use crate::objects::hotel_desk_server::{HotelDesk, HotelDeskServer};
use crate::objects::hotel_geo_client::HotelGeoClient;
use crate::objects::hotel_geo_server::{HotelGeo, HotelGeoServer};
use crate::objects::hotel_profile_client::HotelProfileClient;
use crate::objects::hotel_profile_server::{HotelProfile, HotelProfileServer};
use crate::objects::hotel_rate_client::HotelRateClient;
use crate::objects::hotel_rate_server::{HotelRate, HotelRateServer};
use crate::objects::hotel_reservation_client::HotelReservationClient;
use crate::objects::hotel_reservation_server::{HotelReservation, HotelReservationServer};
use crate::objects::hotel_search_client::HotelSearchClient;
use crate::objects::hotel_search_server::{HotelSearch, HotelSearchServer};
use crate::objects::views::tollfree::workloads::v1::{
    HotelBooked, HotelBooking, HotelIds, HotelList, HotelNight, HotelQuery, HotelRates,
};
use crate::seat::Seat;
use crate::tally::Counters;
use crate::{carry, share};

/// Longer than any object here, in bytes.
const OBJECT_LEN_MAX: usize = 1 << 28;
/// Arenas that wait to be used again.
const WAITING_COUNT_MAX: usize = 64;

static ARENAS: LazyLock<Arenas> = LazyLock::new(|| Arenas::new(OBJECT_LEN_MAX, WAITING_COUNT_MAX));

type Reply<M> = Result<Response<Owned<M>>, Status>;

fn full(error: BuildError) -> Status {
    Status::resource_exhausted(error.to_string())
}

fn build<M: Message>(fill: impl FnOnce(M::Mut<'_>) -> Result<(), BuildError>) -> Result<Owned<M>, Status> {
    let mut builder = Builder::<M>::new(ARENAS.take_for_good()).map_err(full)?;
    fill(builder.edit()).map_err(full)?;
    builder.freeze().map_err(full)
}

/// A handler, and what counts its work.
struct Served<H> {
    handler: H,
    counters: Arc<Counters>,
}

impl<H> Served<H> {
    fn new(handler: H, seat: &Seat) -> Served<H> {
        Served { handler, counters: seat.counters.clone() }
    }

    async fn handle<M>(&self, work: impl Future<Output = Result<Owned<M>, Status>>) -> Reply<M> {
        share::object_handler(&self.counters, work).await.map(Response::new)
    }
}

/// Serves a handler of a service until the end of the process.
macro_rules! serve {
    ($server:ident, $handler:expr, $seat:ident, $ready:ident) => {{
        let service = $server::new(Served::new($handler, $seat));
        let service = service.max_decoding_message_size($seat.message_len_max);
        carry::attach(carry::server($seat).add_service(service), $seat, $ready).await
    }};
}

/// Calls a service by way of the gateway.
macro_rules! connect {
    ($client:ident, $seat:ident, $address:expr) => {
        $client::new(carry::connect_tollfree($seat, $address).await?)
            .max_decoding_message_size($seat.message_len_max)
    };
}

/// As [`Part::play`], for the parts of the hotel.
pub(super) async fn play(
    part: Part,
    seat: &Seat,
    to: &[String],
    ready: impl FnOnce(String),
) -> Result<(), String> {
    match part {
        Part::HotelDesk => {
            let [search, profile, reservation] = super::exactly(to)?;
            let desk = Desk {
                search: connect!(HotelSearchClient, seat, search),
                profile: connect!(HotelProfileClient, seat, profile),
                reservation: connect!(HotelReservationClient, seat, reservation),
            };
            serve!(HotelDeskServer, desk, seat, ready)
        }
        Part::HotelSearch => {
            let [geo, rate] = super::exactly(to)?;
            let search = Search {
                geo: connect!(HotelGeoClient, seat, geo),
                rate: connect!(HotelRateClient, seat, rate),
            };
            serve!(HotelSearchServer, search, seat, ready)
        }
        Part::HotelGeo => serve!(HotelGeoServer, Geo::new(), seat, ready),
        Part::HotelRate => serve!(HotelRateServer, Rate::new(), seat, ready),
        Part::HotelProfile(len) => serve!(HotelProfileServer, Profile::new(seat, len)?, seat, ready),
        Part::HotelReservation => serve!(HotelReservationServer, Reservation::new(), seat, ready),
        other => Err(format!("{} takes no objects", other.name())),
    }
}

struct Desk {
    search: HotelSearchClient<Channel>,
    profile: HotelProfileClient<Channel>,
    reservation: HotelReservationClient<Channel>,
}

impl Desk {
    async fn search(&self, request: Owned<HotelQuery>) -> Result<Owned<HotelList>, Status> {
        let night = request.view().night();
        let found = share::call(self.search.clone().nearby(request)).await?.into_inner();
        let asked = build::<HotelNight>(|mut to| {
            to.hotels_mut()?.extend(found.view().hotels())?;
            to.set_night(night)
        })?;
        let vacant = share::call(self.reservation.clone().vacant(asked)).await?.into_inner();
        let list = share::call(self.profile.clone().profiles(vacant)).await?.into_inner();
        let (found, offers) = (found.view(), list.view().offers());
        let cents_of = |hotel: u32| {
            let at = found.hotels().iter().position(|known| known == hotel);
            let cents = at.and_then(|at| found.cents().get(at));
            cents.ok_or_else(|| Status::internal(format!("hotel {hotel} was described unasked")))
        };
        let cents = offers.iter().map(|offer| cents_of(offer.hotel())).collect::<Result<Vec<_>, _>>()?;
        build::<HotelList>(|mut to| {
            to.copy_from(list.view())?;
            let mut offers = to.offers_mut()?;
            for (idx, cents) in cents.into_iter().enumerate() {
                if let Some(mut offer) = offers.get_mut(idx)? {
                    offer.set_cents(cents)?;
                }
            }
            Ok(())
        })
    }
}

#[tonic::async_trait]
impl HotelDesk for Served<Desk> {
    async fn search(&self, request: Request<Owned<HotelQuery>>) -> Reply<HotelList> {
        self.handle(self.handler.search(request.into_inner())).await
    }

    async fn reserve(&self, request: Request<Owned<HotelBooking>>) -> Reply<HotelBooked> {
        let booked = async {
            let mut reservation = self.handler.reservation.clone();
            share::call(reservation.book(request.into_inner())).await.map(Response::into_inner)
        };
        self.handle(booked).await
    }
}

struct Search {
    geo: HotelGeoClient<Channel>,
    rate: HotelRateClient<Channel>,
}

#[tonic::async_trait]
impl HotelSearch for Served<Search> {
    async fn nearby(&self, request: Request<Owned<HotelQuery>>) -> Reply<HotelRates> {
        let rates = async {
            let request = request.into_inner();
            let night = request.view().night();
            let near = share::call(self.handler.geo.clone().near(request)).await?.into_inner();
            let asked = build::<HotelNight>(|mut to| {
                to.hotels_mut()?.extend(near.view().hotels())?;
                to.set_night(night)
            })?;
            share::call(self.handler.rate.clone().rates(asked)).await.map(Response::into_inner)
        };
        self.handle(rates).await
    }
}

#[tonic::async_trait]
impl HotelGeo for Served<Geo> {
    async fn near(&self, request: Request<Owned<HotelQuery>>) -> Reply<HotelIds> {
        let near = async {
            let query = request.get_ref().view();
            let nearest = self.handler.nearest(query.x(), query.y());
            build::<HotelIds>(|mut to| to.hotels_mut()?.extend(nearest))
        };
        self.handle(near).await
    }
}

#[tonic::async_trait]
impl HotelRate for Served<Rate> {
    async fn rates(&self, request: Request<Owned<HotelNight>>) -> Reply<HotelRates> {
        let rates = async {
            let night = request.get_ref().view();
            let rate = |hotel| self.handler.rate(hotel, night.night());
            let cents = night.hotels().iter().map(rate).collect::<Result<Vec<_>, _>>()?;
            build::<HotelRates>(|mut to| {
                to.hotels_mut()?.extend(night.hotels())?;
                to.cents_mut()?.extend(cents)
            })
        };
        self.handle(rates).await
    }
}

#[tonic::async_trait]
impl HotelProfile for Served<Profile> {
    async fn profiles(&self, request: Request<Owned<HotelIds>>) -> Reply<HotelList> {
        let list = async {
            let hotels = request.get_ref().view().hotels();
            let described = |hotel| self.handler.description(hotel).map(|text| (hotel, text));
            let offers = hotels.iter().map(described).collect::<Result<Vec<_>, _>>()?;
            build::<HotelList>(|mut to| {
                let mut list = to.offers_mut()?;
                for (hotel, description) in offers {
                    let mut offer = list.push_new()?;
                    offer.set_hotel(hotel)?;
                    offer.set_description(description)?;
                }
                Ok(())
            })
        };
        self.handle(list).await
    }
}

#[tonic::async_trait]
impl HotelReservation for Served<Reservation> {
    async fn vacant(&self, request: Request<Owned<HotelNight>>) -> Reply<HotelIds> {
        let vacant = async {
            let night = request.get_ref().view();
            let open = night.hotels().iter().filter(|hotel| !is_closed(*hotel, night.night()));
            build::<HotelIds>(|mut to| to.hotels_mut()?.extend(open))
        };
        self.handle(vacant).await
    }

    async fn book(&self, request: Request<Owned<HotelBooking>>) -> Reply<HotelBooked> {
        let booked = async {
            let booking = request.get_ref().view();
            let (booked, guests) = self.handler.take(booking.hotel(), booking.night());
            build::<HotelBooked>(|mut to| {
                to.set_booked(booked)?;
                to.set_guest(booking.guest())?;
                to.set_guests(guests)
            })
        };
        self.handle(booked).await
    }
}
