//! A worker of the simulation: a queue with one server, that keeps the last functions that it ran.

use std::collections::VecDeque;

use super::trace::Arrival;

#[derive(Debug, Clone, Default)]
pub(super) struct Worker {
    /// The last one at the end.
    kept: Vec<usize>,
    ends_us: VecDeque<f64>,
    /// What it was given in all.
    pub(super) work_us: f64,
}

impl Worker {
    pub(super) fn has(&self, function: usize) -> bool {
        self.kept.contains(&function)
    }

    pub(super) fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// What it would forget for another function.
    pub(super) fn victim(&self, capacity: usize) -> Option<usize> {
        if self.kept.len() < capacity { None } else { self.kept.first().copied() }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.ends_us.len()
    }

    /// How long it will be busy.
    pub(super) fn backlog_us(&self, now_us: f64) -> f64 {
        self.ends_us.back().map_or(0.0, |end| (end - now_us).max(0.0))
    }

    /// Ends what is over at a time; gives how many requests that are.
    pub(super) fn advance(&mut self, now_us: f64) -> usize {
        let over = self.ends_us.iter().take_while(|end| **end <= now_us).count();
        self.ends_us.drain(..over);
        over
    }

    /// Takes a request; gives whether it was a hit, and how long the request waits.
    pub(super) fn take(&mut self, arrival: &Arrival, capacity: usize) -> (bool, f64) {
        let place = self.kept.iter().position(|function| *function == arrival.function);
        match place {
            Some(place) => drop(self.kept.remove(place)),
            None if self.kept.len() == capacity => drop(self.kept.remove(0)),
            None => {}
        }
        self.kept.push(arrival.function);
        let waits_us = self.backlog_us(arrival.at_us);
        self.ends_us.push_back(arrival.at_us + waits_us + arrival.takes_us);
        self.work_us += arrival.takes_us;
        (place.is_some(), waits_us)
    }
}

/// The mean count of outstanding requests.
pub(super) fn mean_outstanding(workers: &[Worker]) -> f64 {
    workers.iter().map(Worker::outstanding).sum::<usize>() as f64 / workers.len() as f64
}

/// Who may have a request, as the gateway's bound is: who has at most one and a half times the mean and `bound` requests outstanding, or the
/// fewest.
pub(super) fn allowed(workers: &[Worker], bound: u32) -> impl Iterator<Item = usize> {
    let most = 1.5 * mean_outstanding(workers) + f64::from(bound);
    let least = workers.iter().map(Worker::outstanding).min().unwrap_or(0);
    let may = move |count: usize| count == least || count as f64 <= most;
    workers.iter().enumerate().filter(move |(_, worker)| may(worker.outstanding())).map(|(at, _)| at)
}

/// By which share the busiest has had more work than the mean of all.
pub(super) fn imbalance(workers: &[Worker]) -> f64 {
    let works = workers.iter().map(|worker| worker.work_us);
    works.clone().fold(0.0, f64::max) * workers.len() as f64 / works.sum::<f64>() - 1.0
}
