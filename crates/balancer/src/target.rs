//! What a source of addresses says of an endpoint.

use std::collections::HashMap;
use std::sync::Arc;

/// An endpoint, as its source describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it is. An endpoint whose address is in the next list too stays the same endpoint.
    pub address: Arc<str>,
    /// Its share of the calls, beside those of the others of its priority and locality. An endpoint of weight 0 gets no calls.
    pub weight: u32,
    /// What the source says of it.
    pub health: Health,
    /// The priority that it belongs to; 0 is the highest.
    pub priority: u32,
    /// Where it stands, if the source says so.
    pub locality: Option<Locality>,
}

/// What a source says of an endpoint. What health checks, connections and calls say is the owner's and the detection's matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It may be used.
    #[default]
    Healthy,
    /// It gets no calls.
    Unhealthy,
}

/// A place with endpoints that share its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locality {
    /// Endpoints of one name and priority are of one locality.
    pub name: Arc<str>,
    /// The locality's share of the calls, beside the other localities of its priority.
    pub weight: u32,
}

impl Target {
    /// A healthy endpoint of weight 1 and the highest priority.
    pub fn new(address: impl Into<Arc<str>>) -> Target {
        Target { address: address.into(), weight: 1, health: Health::Healthy, priority: 0, locality: None }
    }

    /// Whether its source allows calls there at all.
    pub(crate) fn is_usable(&self) -> bool {
        let locality = self.locality.as_ref().is_none_or(|locality| locality.weight > 0);
        self.health == Health::Healthy && self.weight > 0 && locality
    }
}

/// The share of each endpoint of one priority in its calls; 0 for those that get none.
pub(crate) fn shares(targets: &[&Target]) -> Vec<u32> {
    let mut sums: HashMap<Option<&str>, u64> = HashMap::new();
    let usable = |target: &&&Target| target.is_usable();
    for target in targets.iter().filter(usable) {
        *sums.entry(name_of(target)).or_default() += u64::from(target.weight);
    }
    let exact = targets.iter().map(|target| match &target.locality {
        _ if !target.is_usable() => 0.0,
        // Endpoints without one are together as heavy as their weights say.
        None => f64::from(target.weight),
        Some(locality) => {
            let of_locality = f64::from(target.weight) / sums[&name_of(target)] as f64;
            f64::from(locality.weight) * of_locality
        }
    });
    let exact: Vec<f64> = exact.collect();
    let is_whole = exact.iter().all(|share| share.fract() == 0.0);
    let largest = exact.iter().copied().fold(0.0, f64::max);
    // Whole numbers stay as they are; others keep a precision of one in a million.
    let scale = if is_whole || largest == 0.0 { 1.0 } else { SCALE / largest };
    exact.iter().map(|share| if *share > 0.0 { ((share * scale).round() as u32).max(1) } else { 0 }).collect()
}

/// The largest share where weights have to be divided.
const SCALE: f64 = 1_000_000.0;

fn name_of(target: &Target) -> Option<&str> {
    target.locality.as_ref().map(|locality| &*locality.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(weight: u32, locality: Option<(&str, u32)>) -> Target {
        let locality = locality.map(|(name, weight)| Locality { name: name.into(), weight });
        Target { weight, locality, ..Target::new("a") }
    }

    fn of(targets: &[Target]) -> Vec<u32> {
        shares(&targets.iter().collect::<Vec<_>>())
    }

    #[test]
    fn weights_count_as_they_are_without_localities() {
        assert_eq!(of(&[target(3, None), target(0, None), target(u32::MAX, None)]), [3, 0, u32::MAX]);
        let unhealthy = Target { health: Health::Unhealthy, ..target(3, None) };
        assert_eq!(of(&[unhealthy, target(1, None)]), [0, 1]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn endpoints_of_a_locality_share_its_weight() {
        let targets = [
            target(1, Some(("x", 3))),
            target(2, Some(("x", 3))),
            target(7, Some(("y", 6))),
            target(1, Some(("z", 0))),
        ];
        assert_eq!(of(&targets), [1, 2, 6, 0]);
        let thirds = [target(1, Some(("x", 1))), target(2, Some(("x", 1))), target(1, Some(("y", 1)))];
        assert_eq!(of(&thirds), [333_333, 666_667, 1_000_000]);
        // What gets no calls takes no part of its locality's weight.
        let unhealthy = Target { health: Health::Unhealthy, ..target(1, Some(("x", 3))) };
        assert_eq!(of(&[unhealthy, target(1, Some(("x", 3)))]), [0, 3]);
    }
}
