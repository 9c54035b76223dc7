//! Who waits for which reply.
//!
//! Redis answers in the order it was asked, so the waiting requests stand in a queue and the next
//! reply belongs to its head. A request that gives up (its client went away, its time budget is
//! used up) leaves its place empty: the reply still comes and must be taken off the wire.

use std::collections::VecDeque;

/// Names a place in the queue, for ever: numbers are not used again after a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Place<T> {
    /// The request; `None` when it has given up.
    token: Option<T>,
    /// When the request came, in milliseconds.
    since: u64,
}

/// The waiting requests, the one asked first at the head.
#[derive(Debug)]
pub struct Queue<T> {
    places: VecDeque<Place<T>>,
    /// The number of the head's ticket.
    head: u64,
    /// Every place before this number has given up or was answered.
    patient: u64,
    /// Places before this number stand for a connection that was lost: no reply will come.
    lost: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            places: VecDeque::new(),
            head: 0,
            patient: 0,
            lost: 0,
        }
    }
}

impl<T> Queue<T> {
    /// How many replies, or losses, are still to be handed out.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing is to be handed out.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Puts a request at the end; `now` may not be before that of earlier ones.
    pub fn push(&mut self, token: T, now: u64) -> Ticket {
        let ticket = Ticket(self.tail());
        self.places.push_back(Place {
            token: Some(token),
            since: now,
        });
        ticket
    }

    /// Makes a request give up: its token will not be handed out. Does nothing when it was
    /// handed out already.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(place) = self.place(ticket.0) {
            place.token = None;
        }
    }

    /// Takes the head off the queue for a reply: `None` when nobody was asked, `Some(None)` when
    /// the request has given up.
    pub fn pop(&mut self) -> Option<Option<T>> {
        let place = self.places.pop_front()?;
        self.head += 1;
        Some(place.token)
    }

    /// Marks all that wait now as lost with their connection.
    pub fn lose(&mut self) {
        self.lost = self.tail();
    }

    /// Takes the next request that was lost with its connection.
    pub fn pop_lost(&mut self) -> Option<T> {
        while self.head < self.lost {
            if let Some(token) = self.pop()? {
                return Some(token);
            }
        }
        None
    }

    /// Whether a request waits that came before or at `limit`; if so it gives up and is returned.
    pub fn pop_expired(&mut self, limit: u64) -> Option<T> {
        let patient = self.first_patient()?;
        let place = self.place(patient)?;
        if place.since > limit {
            return None;
        }
        let token = place.token.take();
        self.patient = patient + 1;
        token
    }

    /// When the longest waiting request came that has not given up.
    pub fn oldest(&mut self) -> Option<u64> {
        let patient = self.first_patient()?;
        Some(self.place(patient)?.since)
    }

    /// When the head of the line was asked, whether it has given up or not: how long Redis owes
    /// a reply.
    pub fn owed_since(&self) -> Option<u64> {
        self.places.front().map(|place| place.since)
    }

    /// The number of the first request that has not given up.
    fn first_patient(&mut self) -> Option<u64> {
        self.patient = self.patient.max(self.head);
        while self.patient < self.tail() {
            let patient = self.patient;
            if self.place(patient)?.token.is_some() {
                return Some(patient);
            }
            self.patient += 1;
        }
        None
    }

    fn tail(&self) -> u64 {
        self.head + self.places.len() as u64
    }

    fn place(&mut self, number: u64) -> Option<&mut Place<T>> {
        let index = number.checked_sub(self.head)?;
        self.places.get_mut(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_to_those_who_asked_first() {
        let mut queue = Queue::default();
        for token in 0..3 {
            queue.push(token, 10);
        }
        assert_eq!(
            (queue.pop(), queue.pop(), queue.pop()),
            (Some(Some(0)), Some(Some(1)), Some(Some(2)))
        );
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn who_gives_up_keeps_the_place_empty() {
        let mut queue = Queue::default();
        let first = queue.push('a', 1);
        let second = queue.push('b', 2);
        queue.push('c', 3);
        queue.cancel(first);
        assert_eq!(queue.oldest(), Some(2));
        assert_eq!(queue.owed_since(), Some(1));
        assert_eq!(queue.pop(), Some(None));
        queue.cancel(first);
        queue.cancel(second);
        queue.cancel(second);
        assert_eq!(queue.pop(), Some(None));
        assert_eq!(queue.pop(), Some(Some('c')));
    }

    #[test]
    fn requests_expire_in_order_and_once() {
        let mut queue = Queue::default();
        queue.push('a', 10);
        let cancelled = queue.push('b', 11);
        queue.push('c', 12);
        queue.push('d', 20);
        queue.cancel(cancelled);
        assert_eq!(queue.pop_expired(9), None);
        assert_eq!(queue.pop_expired(12), Some('a'));
        assert_eq!(queue.pop_expired(12), Some('c'));
        assert_eq!(queue.pop_expired(12), None);
        assert_eq!(queue.oldest(), Some(20));
        // Their replies are still owed.
        assert_eq!(queue.len(), 4);
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(None); 3]);
        assert_eq!(queue.pop(), Some(Some('d')));
    }

    #[test]
    fn a_lost_connection_takes_only_those_with_it_who_waited_then() {
        let mut queue = Queue::default();
        let ticket = queue.push('a', 1);
        queue.push('b', 1);
        queue.lose();
        queue.push('c', 2);
        queue.cancel(ticket);
        assert_eq!(queue.pop_lost(), Some('b'));
        assert_eq!(queue.pop_lost(), None);
        // A ticket of the lost connection never reaches a place of the new one.
        queue.cancel(ticket);
        assert_eq!(queue.pop(), Some(Some('c')));
    }
}
