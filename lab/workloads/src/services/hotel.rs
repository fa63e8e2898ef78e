//! The services of a hotel reservation, over data that are computed: the load generator knows them too.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tonic::Status;

use crate::direct::{
    HotelBooked, HotelBooking, HotelIds, HotelList, HotelNight, HotelOffer, HotelQuery, HotelRates,
};
use crate::seat::Seat;
use crate::stubs::*;

/// Hotels that there are, on a square of so many places a side, and nights that can be booked.
pub(crate) const HOTEL_COUNT: u32 = 80;
pub(crate) const SIDE_LEN: u32 = 100;
pub(crate) const NIGHT_COUNT: u32 = 28;
/// Hotels that are found.
pub(crate) const FOUND_COUNT: usize = 5;

/// Where a hotel is.
pub(crate) fn place(hotel: u32) -> (u32, u32) {
    (hotel * 37 % SIDE_LEN, hotel * 61 % SIDE_LEN)
}

/// What a hotel costs in a night.
pub(crate) fn cents(hotel: u32, night: u32) -> u32 {
    6_000 + hotel * 151 % 9_000 + night % 7 * 500
}

/// Whether a hotel is closed in a night: every seventh is.
pub(crate) fn is_closed(hotel: u32, night: u32) -> bool {
    hotel % 7 == night % 7
}

/// Receives guests, and asks the others.
pub(super) struct Desk {
    seat: Seat,
    search: HotelSearchClient,
    profile: HotelProfileClient,
    reservation: HotelReservationClient,
}

impl Desk {
    pub(super) async fn to(seat: &Seat, [search, profile, reservation]: [&str; 3]) -> Result<Desk, String> {
        Ok(Desk {
            seat: seat.clone(),
            search: HotelSearchClient::connect(seat, search).await?,
            profile: HotelProfileClient::connect(seat, profile).await?,
            reservation: HotelReservationClient::connect(seat, reservation).await?,
        })
    }
}

impl HandleHotelDesk for Desk {
    async fn search(&self, request: HotelQuery) -> Result<HotelList, Status> {
        let night = request.night;
        let found = self.search.nearby(request).await?;
        let vacant =
            self.reservation.vacant(HotelNight { hotels: found.hotels.clone(), night }).await?.hotels;
        let mut list = self.profile.profiles(HotelIds { hotels: vacant }).await?;
        for offer in &mut list.offers {
            let at = found.hotels.iter().position(|hotel| *hotel == offer.hotel);
            let cents = at.and_then(|at| found.cents.get(at));
            offer.cents = *cents
                .ok_or_else(|| Status::internal(format!("hotel {} was described unasked", offer.hotel)))?;
            offer.description = self.seat.pass_on(std::mem::take(&mut offer.description))?;
        }
        Ok(list)
    }

    async fn reserve(&self, request: HotelBooking) -> Result<HotelBooked, Status> {
        self.reservation.book(request).await
    }
}

/// Has hotels found, and their rates.
pub(super) struct Search {
    geo: HotelGeoClient,
    rate: HotelRateClient,
}

impl Search {
    pub(super) async fn to(seat: &Seat, [geo, rate]: [&str; 2]) -> Result<Search, String> {
        Ok(Search {
            geo: HotelGeoClient::connect(seat, geo).await?,
            rate: HotelRateClient::connect(seat, rate).await?,
        })
    }
}

impl HandleHotelSearch for Search {
    async fn nearby(&self, request: HotelQuery) -> Result<HotelRates, Status> {
        let night = request.night;
        let hotels = self.geo.near(request).await?.hotels;
        self.rate.rates(HotelNight { hotels, night }).await
    }
}

/// Finds the nearest hotels.
pub(super) struct Geo {
    places: Vec<(u32, u32)>,
}

impl Geo {
    pub(super) fn new() -> Geo {
        Geo { places: (0..HOTEL_COUNT).map(place).collect() }
    }

    pub(super) fn nearest(&self, x: u32, y: u32) -> impl Iterator<Item = u32> {
        let distance = |&(there_x, there_y): &(u32, u32)| {
            u64::from(there_x.abs_diff(x)).pow(2) + u64::from(there_y.abs_diff(y)).pow(2)
        };
        let mut nearest: Vec<(u64, u32)> = self.places.iter().map(distance).zip(0..).collect();
        nearest.sort_unstable();
        nearest.into_iter().take(FOUND_COUNT).map(|(_, hotel)| hotel)
    }
}

impl HandleHotelGeo for Geo {
    async fn near(&self, request: HotelQuery) -> Result<HotelIds, Status> {
        Ok(HotelIds { hotels: self.nearest(request.x, request.y).collect() })
    }
}

/// Knows the rates of each hotel and night.
pub(super) struct Rate {
    rates: HashMap<(u32, u32), u32>,
}

impl Rate {
    pub(super) fn new() -> Rate {
        let nights = |hotel| (0..NIGHT_COUNT).map(move |night| ((hotel, night), cents(hotel, night)));
        Rate { rates: (0..HOTEL_COUNT).flat_map(nights).collect() }
    }

    pub(super) fn rate(&self, hotel: u32, night: u32) -> Result<u32, Status> {
        let known = self.rates.get(&(hotel, night)).copied();
        known.ok_or_else(|| Status::not_found(format!("hotel {hotel} has no rate for night {night}")))
    }
}

impl HandleHotelRate for Rate {
    async fn rates(&self, request: HotelNight) -> Result<HotelRates, Status> {
        let rate = |hotel: &u32| self.rate(*hotel, request.night);
        let cents = request.hotels.iter().map(rate).collect::<Result<_, _>>()?;
        Ok(HotelRates { hotels: request.hotels, cents })
    }
}

/// Keeps what is said of each hotel: in the pool, where there is one.
pub(super) struct Profile {
    seat: Seat,
    descriptions: Vec<Bytes>,
}

impl Profile {
    pub(super) fn new(seat: &Seat, description_len: usize) -> Result<Profile, String> {
        let descriptions = (0..HOTEL_COUNT).map(|hotel| seat.write(description_len, hotel.into()));
        Ok(Profile { seat: seat.clone(), descriptions: descriptions.collect::<Result<_, _>>()? })
    }

    pub(super) fn description(&self, hotel: u32) -> Result<&Bytes, Status> {
        let known = self.descriptions.get(hotel as usize);
        known.ok_or_else(|| Status::not_found(format!("there is no hotel {hotel}")))
    }
}

impl HandleHotelProfile for Profile {
    async fn profiles(&self, request: HotelIds) -> Result<HotelList, Status> {
        let offer = |hotel: u32| {
            let description = self.description(hotel)?.clone();
            Ok(HotelOffer { hotel, cents: 0, description: self.seat.pass_on(description)? })
        };
        Ok(HotelList { offers: request.hotels.into_iter().map(offer).collect::<Result<_, Status>>()? })
    }
}

/// Counts guests of each hotel and night.
pub(super) struct Reservation {
    guests: Mutex<HashMap<(u32, u32), u32>>,
}

impl Reservation {
    pub(super) fn new() -> Reservation {
        Reservation { guests: Mutex::default() }
    }

    /// Books, if the hotel is open. Whether it is, and how many guests there are then.
    pub(super) fn take(&self, hotel: u32, night: u32) -> (bool, u32) {
        let mut all = self.guests.lock();
        let guests = all.entry((hotel, night)).or_default();
        let booked = !is_closed(hotel, night);
        *guests += u32::from(booked);
        (booked, *guests)
    }
}

impl HandleHotelReservation for Reservation {
    async fn vacant(&self, request: HotelNight) -> Result<HotelIds, Status> {
        let mut hotels = request.hotels;
        hotels.retain(|hotel| !is_closed(*hotel, request.night));
        Ok(HotelIds { hotels })
    }

    async fn book(&self, request: HotelBooking) -> Result<HotelBooked, Status> {
        let (booked, guests) = self.take(request.hotel, request.night);
        Ok(HotelBooked { booked, guest: request.guest, guests })
    }
}
