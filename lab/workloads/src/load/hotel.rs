//! Guests of the hotels: nine of ten requests search, one books.

use super::{Caller, failed, in_full};
use crate::dice::Dice;
use crate::direct::{HotelBooked, HotelBooking, HotelList, HotelQuery};
use crate::pattern;
use crate::seat::Seat;
use crate::services::hotel::{FOUND_COUNT, HOTEL_COUNT, NIGHT_COUNT, SIDE_LEN, cents, is_closed, place};
use crate::stubs::HotelDeskClient;

pub(super) struct Guests {
    client: HotelDeskClient,
    description_len: usize,
}

impl Guests {
    pub(super) async fn new(seat: &Seat, entry: &str, description_len: usize) -> Result<Guests, String> {
        Ok(Guests { client: HotelDeskClient::connect(seat, entry).await?, description_len })
    }
}

/// The vacant ones of the nearest hotels, with their rates of the night and their own descriptions.
fn check_list(
    list: &HotelList,
    (x, y, night): (u32, u32, u32),
    description_len: usize,
    in_full: bool,
) -> Result<(), String> {
    let mut nearest: Vec<u32> = (0..HOTEL_COUNT).collect();
    nearest.sort_by_key(|hotel| {
        let (hotel_x, hotel_y) = place(*hotel);
        hotel_x.abs_diff(x).pow(2) + hotel_y.abs_diff(y).pow(2)
    });
    nearest.truncate(FOUND_COUNT);
    let expected = nearest.into_iter().filter(|hotel| !is_closed(*hotel, night));
    let expected: Vec<_> = expected.map(|hotel| (hotel, cents(hotel, night))).collect();
    let offered: Vec<_> = list.offers.iter().map(|offer| (offer.hotel, offer.cents)).collect();
    if offered != expected {
        return Err(format!("hotels at {x}, {y} in night {night}: {offered:?} instead of {expected:?}"));
    }
    for offer in &list.offers {
        let seed = offer.hotel.into();
        let is_right = pattern::is_at_the_ends(&offer.description, description_len, seed)
            && (!in_full || pattern::sum(&offer.description) == pattern::sum_of(description_len, seed));
        if !is_right {
            return Err(format!("hotel {} has another description than its own", offer.hotel));
        }
    }
    Ok(())
}

fn check_booked(answer: &HotelBooked, hotel: u32, night: u32, guest: u64) -> Result<(), String> {
    let booked = !is_closed(hotel, night);
    if answer.guest == guest && answer.booked == booked && (answer.guests > 0) == booked {
        return Ok(());
    }
    Err(format!("guest {guest} of hotel {hotel} in night {night} was answered {answer:?}"))
}

impl Caller for Guests {
    async fn call(&self, nth: u64) -> Result<(), String> {
        let mut dice = Dice::new(nth);
        let is_booking = dice.below(100) >= 90;
        let night = dice.below(NIGHT_COUNT.into()) as u32;
        if is_booking {
            let hotel = dice.below(HOTEL_COUNT.into()) as u32;
            let answer = self.client.reserve(HotelBooking { hotel, night, guest: nth }).await;
            return check_booked(&answer.map_err(failed)?, hotel, night, nth);
        }
        let (x, y) = (dice.below(SIDE_LEN.into()) as u32, dice.below(SIDE_LEN.into()) as u32);
        let list = self.client.search(HotelQuery { x, y, night }).await.map_err(failed)?;
        check_list(&list, (x, y, night), self.description_len, in_full(nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::HotelOffer;

    #[test]
    fn a_wrong_answer_is_noticed() {
        let mut nearest: Vec<u32> = (0..HOTEL_COUNT).collect();
        nearest.sort_by_key(|hotel| place(*hotel).0.pow(2) + place(*hotel).1.pow(2));
        let offers =
            nearest.into_iter().take(FOUND_COUNT).filter(|hotel| !is_closed(*hotel, 3)).map(|hotel| {
                let mut description = Vec::new();
                pattern::write(&mut description, 500, hotel.into());
                HotelOffer { hotel, cents: cents(hotel, 3), description: description.into() }
            });
        let right = HotelList { offers: offers.collect() };
        check_list(&right, (0, 0, 3), 500, true).unwrap();
        let check = |change: &dyn Fn(&mut HotelList)| {
            let mut wrong = right.clone();
            change(&mut wrong);
            check_list(&wrong, (0, 0, 3), 500, true).unwrap_err()
        };
        assert!(check(&|list| list.offers[0].cents += 1).contains("instead of"));
        assert!(check(&|list| drop(list.offers.pop())).contains("instead of"));
        assert!(check(&|list| list.offers.swap(0, 1)).contains("instead of"));
        let last = right.offers[1].description.clone();
        assert!(check(&|list| list.offers[0].description = last.clone()).contains("description"));
        let booked = HotelBooked { booked: true, guest: 9, guests: 1 };
        check_booked(&booked, 1, 3, 9).unwrap();
        check_booked(&booked, 1, 3, 8).unwrap_err();
        check_booked(&booked, 3, 3, 9).unwrap_err();
    }
}
