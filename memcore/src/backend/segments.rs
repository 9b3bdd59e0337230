//! A table of segments for backends: finds a segment by its id with one index.

use super::SegmentId;
use crate::error::{Error, Result};

/// The lower bits of an id are its place in the table. The upper bits count the uses of that place, so that a stale id
/// does not name a newer segment (until the count wraps around, after 4096 uses of one place).
const PLACE_BITS: u32 = 20;

/// The largest number of segments at one time.
const MAX_SEGMENTS: usize = 1 << PLACE_BITS;

struct Place<T> {
    id: SegmentId,
    segment: Option<T>,
}

/// Segments by id. A look-up costs one index and one comparison.
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
    /// Checks that there is a place for one more segment; call it before taking memory for one.
    ///
    /// # Errors
    /// [`Error::Invalid`] with more than a million segments at one time.
    pub fn check_room(&self) -> Result<()> {
        if self.vacant.is_empty() && self.places.len() >= MAX_SEGMENTS {
            return Err(Error::invalid(
                "segments",
                format!("{MAX_SEGMENTS} exist at once, and no more can be numbered"),
            ));
        }
        Ok(())
    }

    /// Stores a segment under an id that no existing segment has.
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

    /// Returns the segment with this id.
    ///
    /// # Errors
    /// [`Error::UnknownSegment`].
    #[inline]
    pub fn get(&self, id: SegmentId) -> Result<&T> {
        let place = self.places.get(id.0 as usize % MAX_SEGMENTS).filter(|place| place.id == id);
        place.and_then(|place| place.segment.as_ref()).ok_or(Error::UnknownSegment(id))
    }

    /// Returns the segment with this id, mutably.
    pub fn get_mut(&mut self, id: SegmentId) -> Result<&mut T> {
        let place = self.places.get_mut(id.0 as usize % MAX_SEGMENTS).filter(|place| place.id == id);
        place.and_then(|place| place.segment.as_mut()).ok_or(Error::UnknownSegment(id))
    }

    /// Removes a segment; `None` if no segment has this id.
    pub fn remove(&mut self, id: SegmentId) -> Option<T> {
        let place = id.0 % MAX_SEGMENTS as u32;
        let entry = self.places.get_mut(place as usize).filter(|entry| entry.id == id)?;
        let segment = entry.segment.take()?;
        self.vacant.push(place);
        Some(segment)
    }

    /// Ids of all existing segments.
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
