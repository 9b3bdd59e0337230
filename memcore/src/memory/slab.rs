//! A slab: entries that are found by index.

/// Entries that keep their index while they exist.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new() }
    }

    pub(super) fn insert(&mut self, entry: T) -> u32 {
        match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                index
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize).and_then(Option::take);
        if entry.is_some() {
            self.vacant.push(index);
        }
        entry
    }

    /// Removes an entry without returning it: cheaper than [`remove`](Self::remove), which moves it.
    #[inline]
    pub(super) fn discard(&mut self, index: u32) {
        self.entries[index as usize] = None;
        self.vacant.push(index);
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize).and_then(Option::as_ref)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((index as u32, entry.as_ref()?)))
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        self.entries[index as usize].as_ref().expect("links lead to live entries")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.entries[index as usize].as_mut().expect("links lead to live entries")
    }
}
