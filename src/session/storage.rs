//! Where journal bytes go: a file, and fakes that fail as disks do.

use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use fs_err as fs;

/// An append-only file whose bytes are safe once it was synced.
pub trait Storage: Send {
    /// Adds bytes at the end.
    ///
    /// # Errors
    /// Those of the disk; some of the bytes may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all bytes so far survive a loss of power.
    ///
    /// # Errors
    /// Those of the disk; nothing is known of the unsynced bytes then.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file to this length.
    ///
    /// # Errors
    /// Those of the disk.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

/// A real file.
#[derive(Debug)]
pub struct FileStorage {
    file: fs::File,
}

impl FileStorage {
    /// Opens or makes the file, readable by the owner alone.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open(path: &Path) -> io::Result<Self> {
        use fs_err::os::unix::fs::OpenOptionsExt as _;
        let mut file =
            fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file })
    }
}

impl Storage for FileStorage {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len))?;
        Ok(())
    }
}

/// Storage that fails as disks do; for tests.
pub mod fake {
    use super::{Storage, io};
    use std::sync::{Arc, Mutex, PoisonError};

    /// What the disk holds.
    #[derive(Clone, Debug, Default)]
    pub struct Disk(Arc<Mutex<Content>>);

    #[derive(Debug, Default)]
    struct Content {
        bytes: Vec<u8>,
        synced: usize,
        room: Option<usize>,
    }

    impl Disk {
        /// A disk that takes at most `room` bytes.
        pub fn with_room(room: usize) -> Self {
            let disk = Self::default();
            disk.set_room(Some(room));
            disk
        }

        /// Changes how many bytes the disk takes; `None` is no limit.
        pub fn set_room(&self, room: Option<usize>) {
            self.lock().room = room;
        }

        /// What is left after a loss of power that kept `kept` of the unsynced bytes.
        pub fn after_power_loss(&self, kept: usize) -> Vec<u8> {
            let content = self.lock();
            let end = (content.synced + kept).min(content.bytes.len());
            content.bytes[..end].to_vec()
        }

        /// Everything that was written.
        pub fn bytes(&self) -> Vec<u8> {
            self.lock().bytes.clone()
        }

        fn lock(&self) -> std::sync::MutexGuard<'_, Content> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Storage for Disk {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let mut content = self.lock();
            let fits =
                content.room.map_or(bytes.len(), |room| room.saturating_sub(content.bytes.len()).min(bytes.len()));
            content.bytes.extend_from_slice(&bytes[..fits]);
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }

        fn sync(&mut self) -> io::Result<()> {
            let mut content = self.lock();
            content.synced = content.bytes.len();
            Ok(())
        }

        fn cut(&mut self, len: u64) -> io::Result<()> {
            let mut content = self.lock();
            content.bytes.truncate(len as usize);
            content.synced = content.synced.min(content.bytes.len());
            Ok(())
        }
    }
}
