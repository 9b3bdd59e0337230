//! A table of segments for backends: what each id stands for, found by index.

use super::SegmentId;
use crate::error::{Error, Result};

/// The lower bits of an id are its place in the table, the upper ones count how often the place was used, so that a stale id does not name a newer
/// segment (until the count is through, after 4096 uses of one place).
const PLACE_BITS: u32 = 20;

/// The most segments at once.
const MAX_SEGMENTS: usize = 1 << PLACE_BITS;

struct Place<T> {
    id: SegmentId,
    segment: Option<T>,
}

/// Segments by id. Finding one costs an index and a comparison.
pub struct SegmentTable<T> {
    places: Vec<Place<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for SegmentTable<T> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> SegmentTable<T> {
    /// Whether one more has a place: to be asked before memory is taken for it.
    ///
    /// # Errors
    /// [`Error::Invalid`] with more than a million at once.
    pub fn check_room(&self) -> Result<()> {
        if self.vacant.is_empty() && self.places.len() >= MAX_SEGMENTS {
            return Err(Error::invalid(
                "segments",
                format!("{MAX_SEGMENTS} exist at once, and no more can be numbered"),
            ));
        }
        Ok(())
    }

    /// Gives a segment an id that none has that exists.
    pub fn insert(&mut self, segment: T) -> Result<SegmentId> {
        self.check_room()?;
        let place = self.vacant.pop().unwrap_or_else(|| {
            let place = self.places.len() as u32;
            self.places.push(Place { id: SegmentId(place), segment: None });
            place
        });
        let entry = &mut self.places[place as usize];
        entry.id = SegmentId(entry.id.0.wrapping_add(1 << PLACE_BITS));
        entry.segment = Some(segment);
        Ok(entry.id)
    }

    /// The segment of that id.
    ///
    /// # Errors
    /// [`Error::UnknownSegment`].
    #[inline]
    pub fn get(&self, id: SegmentId) -> Result<&T> {
        let place = self.places.get(id.0 as usize % MAX_SEGMENTS).filter(|place| place.id == id);
        place.and_then(|place| place.segment.as_ref()).ok_or(Error::UnknownSegment(id))
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: SegmentId) -> Result<&mut T> {
        let place = self.places.get_mut(id.0 as usize % MAX_SEGMENTS).filter(|place| place.id == id);
        place.and_then(|place| place.segment.as_mut()).ok_or(Error::UnknownSegment(id))
    }

    /// Takes a segment out; `None` for an id that names none.
    pub fn remove(&mut self, id: SegmentId) -> Option<T> {
        let place = id.0 % MAX_SEGMENTS as u32;
        let entry = self.places.get_mut(place as usize).filter(|entry| entry.id == id)?;
        let segment = entry.segment.take()?;
        self.vacant.push(place);
        Some(segment)
    }

    /// The ids of all that exist.
    pub fn ids(&self) -> Vec<SegmentId> {
        self.places.iter().filter(|place| place.segment.is_some()).map(|place| place.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_own_segment_alone() {
        let mut table = SegmentTable::default();
        let (a, b) = (table.insert('a').unwrap(), table.insert('b').unwrap());
        assert_eq!((table.get(a).copied().unwrap(), table.remove(a), table.remove(a)), ('a', Some('a'), None));
        let c = table.insert('c').unwrap();
        assert_ne!(a, c);
        assert!(matches!(table.get(a), Err(Error::UnknownSegment(id)) if id == a));
        assert!(matches!(table.get(SegmentId(0)), Err(Error::UnknownSegment(_))), "no id is a bare index");
        *table.get_mut(c).unwrap() = 'd';
        assert_eq!((table.get(b).unwrap(), table.get(c).unwrap(), table.ids().len()), (&'b', &'d', 2));
    }

    #[test]
    fn what_cannot_be_numbered_is_refused() {
        let mut table = SegmentTable::default();
        let ids: Vec<SegmentId> = (0..MAX_SEGMENTS).map(|_| table.insert(()).unwrap()).collect();
        assert!(table.insert(()).is_err());
        table.remove(ids[7]);
        assert!(table.insert(()).is_ok_and(|id| id != ids[7]));
    }
}
