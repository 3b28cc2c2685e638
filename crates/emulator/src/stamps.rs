//! Times at which programs handed their packets to a device, taken by the kernel.
//!
//! The emulator reads a packet some 10 to 100 µs after the program has sent it: its thread must wake up first. A packet
//! socket on the device sees every packet in the sender's own system call, and writes the time and the packet's first
//! bytes into a ring of memory shared with the kernel (packet(7), `TPACKET_V2`). The emulator looks up each packet that
//! it reads in the ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use cellbed_link::{Duration, Time};
use cellbed_netdev::{DEVICE_QUEUE, NetworkNamespace};

use crate::clock::RealTime;
use crate::error::{Error, Result, Trying};
use crate::tun::Tun;

/// Bytes of a frame: the header of a packet in the ring, and the packet's first bytes.
const FRAME: usize = 128;

/// Number of frames. A packet that finds no free frame has no time stamp.
const FRAMES: usize = 2048;

/// Maximum bytes of a packet in a frame: enough for the ports and the numbers of TCP behind an IPv6 header.
const HEAD: u32 = 48;

/// Packets in a second that are a flood: a stamp costs the sender more than 1 µs.
const FLOOD: u64 = 50_000;

/// Age at which the frame of an unread packet is removed: the device dropped the packet.
const STALE: Duration = Duration::from_millis(1);

/// The stamps of one device.
pub struct Stamps {
    /// The ring's memory, which the kernel writes.
    ring: NonNull<u8>,
    socket: OwnedFd,
    /// The oldest frame.
    first: usize,
    /// Packets read since the device was last empty.
    read: u32,
    /// Packets read since `counted_from`.
    counted: u64,
    counted_from: Time,
    /// Settings of the clock until the device was last empty.
    settings: u64,
    /// Settings of the clock until the last look.
    settings_now: u64,
}

// SAFETY: the memory belongs to this value alone; its address is valid in all threads.
unsafe impl Send for Stamps {}

impl Stamps {
    /// Let the kernel stamp the packets of a device from now on. Waits some 10 ms for the kernel.
    ///
    /// Errors: the caller lacks privileges in the device's namespace.
    pub fn open(tun: &Tun) -> Result<Self> {
        let namespace = NetworkNamespace::of_device(tun.as_fd())?;
        namespace.run(|| {
            let opened = open_socket(tun.name());
            Ok::<_, Error>(opened.trying(|| format!("stamp the packets of {}", tun.name()))?)
        })
    }

    /// Prepare for reading packets at `now`. Return whether the packets are a flood that should not be stamped any
    /// longer. settings: number of settings of the clock.
    pub fn on_look(&mut self, now: Time, settings: u64) -> bool {
        self.settings_now = settings;
        if now.since(self.counted_from) >= Duration::from_secs(1) {
            self.counted = 0;
            self.counted_from = now;
        }
        self.counted > FLOOD
    }

    /// Return the time at which a packet was sent, if it is known. packet: its first bytes, from the IP header on.
    /// length: its bytes.
    ///
    /// Packets must be passed in the order of their reading.
    pub fn take(&mut self, packet: &[u8], length: usize, real: &RealTime) -> Option<Time> {
        self.read = self.read.saturating_add(1);
        self.counted += 1;
        let head = &packet[..packet.len().min(HEAD as usize)];
        for ahead in 0..FRAMES {
            let frame = self.frame(ahead)?;
            if frame.length == length && frame.head == head {
                let at = real.to_monotonic(frame.real);
                self.release(ahead + 1);
                // A full queue drops packets, and the frame of a dropped packet may match a later, equal one.
                let trusted = self.read < DEVICE_QUEUE && self.settings == self.settings_now;
                return trusted.then_some(at);
            }
        }
        self.release(FRAMES);
        None
    }

    /// Record that the device has no packet to read at `now`: it has dropped those with an old frame.
    pub fn on_empty(&mut self, now: Time, real: &RealTime) {
        self.read = 0;
        let set = self.settings != self.settings_now;
        self.settings = self.settings_now;
        while let Some(frame) = self.frame(0)
            && (set || real.to_monotonic(frame.real) + STALE < now)
        {
            self.release(1);
        }
    }

    /// Return a frame by its place behind the oldest one, if the kernel has filled it.
    fn frame(&self, ahead: usize) -> Option<Frame<'_>> {
        let base = (self.first + ahead) % FRAMES * FRAME;
        // SAFETY: the frame lies in the mapped ring, aligned to 16 bytes. The kernel changes its status at any time,
        // therefore the atomic access, and the rest only while the status is "of the kernel".
        let status = unsafe { AtomicU32::from_ptr(self.ring.as_ptr().add(base).cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: see above; the frame stays unchanged until `release`, which needs exclusive access.
        let bytes = unsafe { std::slice::from_raw_parts(self.ring.as_ptr().add(base), FRAME) };
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        // Fields of `tpacket2_hdr` (linux/if_packet.h).
        let start = usize::from(u16::from_ne_bytes([bytes[14], bytes[15]]));
        let head = bytes.get(start..)?;
        Some(Frame {
            length: word(4) as usize,
            head: &head[..head.len().min(word(8) as usize)],
            real: u64::from(word(16)) * 1_000_000_000 + u64::from(word(20)),
        })
    }

    /// Return the oldest frames to the kernel.
    fn release(&mut self, frames: usize) {
        for _ in 0..frames {
            // SAFETY: as in `frame`.
            let status =
                unsafe { AtomicU32::from_ptr(self.ring.as_ptr().add(self.first * FRAME).cast()) };
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.first = (self.first + 1) % FRAMES;
        }
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this size, and no reference to it is left.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), FRAME * FRAMES) };
    }
}

/// A frame filled by the kernel.
struct Frame<'a> {
    /// Bytes of the packet.
    length: usize,
    /// First bytes of the packet.
    head: &'a [u8],
    /// Time of the stamp, ns of `CLOCK_REALTIME`.
    real: u64,
}

/// Open a packet socket with a ring for the packets that leave through a device of this thread's namespace.
fn open_socket(device: &str) -> io::Result<Stamps> {
    let check = |status: libc::c_int| match status {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    };
    // SAFETY: the call takes no pointers. Protocol 0: nothing is received before `bind`.
    let socket =
        check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    set(
        &socket,
        libc::SOL_PACKET,
        libc::PACKET_VERSION,
        &(libc::tpacket_versions::TPACKET_V2 as i32),
    )?;
    let ring = libc::tpacket_req {
        tp_block_size: 4096,
        tp_block_nr: (FRAME * FRAMES / 4096) as u32,
        tp_frame_size: FRAME as u32,
        tp_frame_nr: FRAMES as u32,
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)?;
    // Packets that the device sends, without those that it receives.
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut steps = [
        step(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            0,
            0,
            packet_type,
        ),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::PACKET_OUTGOING.into(),
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, HEAD),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let ring = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            FRAME * FRAMES,
            protection,
            libc::MAP_SHARED,
            socket.as_raw_fd(),
            0,
        )
    };
    if ring == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let ring = NonNull::new(ring.cast()).ok_or_else(io::Error::last_os_error)?;
    let stamps = Stamps {
        ring,
        socket,
        first: 0,
        read: 0,
        counted: 0,
        counted_from: Time::ZERO,
        settings: 0,
        settings_now: 0,
    };
    // SAFETY: the all-zero value is valid for this plain C structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = rustix::net::netdevice::name_to_index(&stamps.socket, device)? as i32;
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a valid structure of this size that outlives the call.
    check(unsafe { libc::bind(stamps.socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(stamps)
}

/// Set an option of a socket.
fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is a structure of this size that outlives the call, and each caller passes the option's own.
    match unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
