//! Loads and stores: where they go, what is wrong with them, what they are
//! counted as.

use super::asynchronous::clashed;
use super::state::{SHARED_BIT, State};
use crate::fault::{ArrayId, FaultKind, RawFault};
use crate::memory::{Finding, POISON, Span};
use crate::sites::SiteId;
use crate::warp::{AccessKind, LANES};
use kernels::gpu::host::{Access, Site, Space};
use std::borrow::Cow;

impl State {
    /// Notes the requests that an access is part of. One of more than 16 bytes
    /// is several, as no instruction moves more for a thread.
    #[inline]
    pub(super) fn record(&mut self, site: SiteId, access: &Access, store: bool, bytes: usize) {
        let lane = usize::from(self.thread) % LANES;
        let kind = AccessKind::new(access.space, store, bytes.min(16));
        self.log.record(site, kind, lane, access.address);
        for part in 1..bytes >> 4 {
            let address = access.address + 16 * part as u64;
            self.log.record(site, kind, lane, address);
        }
    }

    #[inline]
    pub(super) fn load(&mut self, access: &Access, value: &mut [u8]) {
        let site = self.site(access.site);
        if misaligned(access.address, value.len()) {
            self.misaligned(site, access, value.len(), "load");
            return poison(value);
        }
        match access.space {
            Space::Shared => self.load_shared(site, access, value),
            Space::Global => self.load_global(site, access, value),
        }
    }

    #[inline]
    fn load_shared(&mut self, site: SiteId, access: &Access, value: &mut [u8]) {
        match self.block.shared.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("load of {} bytes", value.len());
                self.report_shared(
                    FaultKind::OutOfBounds,
                    site,
                    access,
                    outside.array,
                    None,
                    detail,
                );
                poison(value);
            }
            Ok((array, first)) => {
                self.record(site, access, false, value.len());
                self.read_shared(site, access, array, first, value);
            }
        }
    }

    /// Reads the words from `first` on of the running block's shared memory.
    #[inline]
    pub(super) fn read_shared(
        &mut self,
        site: SiteId,
        access: &Access,
        array: usize,
        first: usize,
        value: &mut [u8],
    ) {
        self.touch(site, SHARED_BIT + array as u32);
        let by = self.actor(site);
        let mut finding = None;
        for (i, bytes) in value.chunks_exact_mut(4).enumerate() {
            let (word, mut found) = self.block.shared.read(first + i, by);
            if let Some(order) = &mut self.block.order {
                // Epochs know too little here; what they find beside races
                // still holds.
                let clash = order.read(first + i, by.thread, site);
                found = found
                    .filter(|found| found.kind != FaultKind::SharedRace)
                    .or(clash.map(clashed));
            }
            bytes.copy_from_slice(&word.to_ne_bytes());
            if let Some(found) = found {
                finding.get_or_insert((first + i, found));
            }
        }
        if let Some((word, finding)) = finding {
            self.shared_finding(site, access, array, word, finding, "read");
        }
    }

    #[cold]
    pub(super) fn shared_finding(
        &mut self,
        site: SiteId,
        access: &Access,
        array: usize,
        word: usize,
        finding: Finding,
        what: &str,
    ) {
        let array = self.block.shared.array(array);
        let offset = word as i64 * 4 - i64::from(array.start);
        let detail = describe(what, finding.detail.text());
        let array = Some((array, offset));
        let other = self.other(&finding);
        self.report_shared(finding.kind, site, access, array, other, detail);
    }

    #[cold]
    fn global_finding(
        &mut self,
        site: SiteId,
        access: &Access,
        span: Span,
        finding: Finding,
        what: &str,
    ) {
        let detail = describe(what, finding.detail.text());
        let array = Some((span.array, span.word as i64 * 4));
        let other = self.other(&finding);
        self.report_global(finding.kind, site, access, array, other, detail);
    }

    #[inline]
    fn load_global(&mut self, site: SiteId, access: &Access, value: &mut [u8]) {
        match self.context.memory.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("load of {} bytes", value.len());
                let array = outside.array;
                self.report_global(FaultKind::OutOfBounds, site, access, array, None, detail);
                poison(value);
            }
            Ok(span) => {
                self.touch(site, span.array as u32);
                self.record(site, access, false, value.len());
                let tracked = self.context.writable[span.array];
                let by = self.actor(site);
                let mut finding = None;
                for (i, bytes) in value.chunks_exact_mut(4).enumerate() {
                    let mut span = span;
                    span.word += i;
                    let memory = &self.context.memory;
                    let (word, found) = if tracked {
                        let element = access.element_bytes;
                        self.block.accesses.read(memory, span, element, by)
                    } else {
                        let (word, initialised) = memory.read(span);
                        let found = Finding::uninitialized(FaultKind::UninitializedGlobal);
                        (word, (!initialised).then_some(found))
                    };
                    bytes.copy_from_slice(&word.to_ne_bytes());
                    if let Some(found) = found {
                        finding.get_or_insert((span, found));
                    }
                }
                if let Some((span, finding)) = finding {
                    self.global_finding(site, access, span, finding, "read");
                }
            }
        }
    }

    #[inline]
    pub(super) fn store(&mut self, access: &Access, value: &[u8]) {
        let site = self.site(access.site);
        if misaligned(access.address, value.len()) {
            return self.misaligned(site, access, value.len(), "store");
        }
        match access.space {
            Space::Shared => self.store_shared(site, access, value),
            Space::Global => self.store_global(site, access, value),
        }
    }

    #[inline]
    fn store_shared(&mut self, site: SiteId, access: &Access, value: &[u8]) {
        match self.block.shared.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("store of {} bytes", value.len());
                self.report_shared(
                    FaultKind::OutOfBounds,
                    site,
                    access,
                    outside.array,
                    None,
                    detail,
                );
            }
            Ok((array, first)) => {
                self.record(site, access, true, value.len());
                self.write_shared(site, access, array, first, value);
            }
        }
    }

    /// Writes the words from `first` on of the running block's shared memory.
    #[inline]
    pub(super) fn write_shared(
        &mut self,
        site: SiteId,
        access: &Access,
        array: usize,
        first: usize,
        value: &[u8],
    ) {
        self.touch(site, SHARED_BIT + array as u32);
        let by = self.actor(site);
        let mut finding = None;
        for (i, word) in words(value).enumerate() {
            let mut found = self.block.shared.write(first + i, word, by);
            if let Some(order) = &mut self.block.order {
                found = order.write(first + i, by.thread, site).map(clashed);
            }
            if let Some(found) = found {
                finding.get_or_insert((first + i, found));
            }
        }
        if let Some((word, finding)) = finding {
            self.shared_finding(site, access, array, word, finding, "write");
        }
    }

    #[inline]
    fn store_global(&mut self, site: SiteId, access: &Access, value: &[u8]) {
        match self.context.memory.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("store of {} bytes", value.len());
                let array = outside.array;
                self.report_global(FaultKind::OutOfBounds, site, access, array, None, detail);
            }
            Ok(span) => {
                self.touch(site, span.array as u32);
                self.record(site, access, true, value.len());
                let by = self.actor(site);
                let overlap = self.context.overlap;
                let mut finding = None;
                for (i, word) in words(value).enumerate() {
                    let mut span = span;
                    span.word += i;
                    let found =
                        self.block
                            .accesses
                            .write(span, word, access.element_bytes, by, overlap);
                    if let Some(found) = found {
                        finding.get_or_insert((span, found));
                    }
                }
                if let Some((span, finding)) = finding {
                    self.global_finding(site, access, span, finding, "write");
                }
            }
        }
    }

    #[cold]
    pub(super) fn misaligned(&mut self, site: SiteId, access: &Access, bytes: usize, what: &str) {
        let detail = format!(
            "{what} of {bytes} bytes at an address that is no multiple of {}",
            bytes.min(16)
        );
        let kind = FaultKind::Misaligned;
        match access.space {
            Space::Global => {
                let array = match self.context.memory.locate(access.address, bytes) {
                    Ok(span) => {
                        let offset = access.address - self.context.memory.base(span.array);
                        Some((span.array, offset as i64))
                    }
                    Err(outside) => outside.array,
                };
                self.report_global(kind, site, access, array, None, detail);
            }
            Space::Shared => {
                let array = match self.block.shared.locate(access.address, bytes) {
                    Ok((array, word)) => {
                        let array = self.block.shared.array(array);
                        Some((array, word as i64 * 4 - i64::from(array.start)))
                    }
                    Err(outside) => outside.array,
                };
                self.report_shared(kind, site, access, array, None, detail);
            }
        }
    }

    pub(super) fn declare_shared(&mut self, name: &'static str, bytes: u32, site: Site) -> u64 {
        let limit = self.context.shared_limit;
        let (address, fits) = self.block.shared.declare(name, bytes, limit);
        if !self.shared_arrays.contains(&name) {
            self.shared_arrays.push(name);
        }
        self.shared_bytes = self.shared_bytes.max(self.block.shared.used());
        if !fits {
            let mut fault = RawFault::new(FaultKind::SharedMemoryLimit);
            fault.by = Some(self.me());
            fault.site = Some(self.site(site));
            fault.array = ArrayId::Shared(name);
            fault.array_bytes = u64::from(bytes);
            fault.detail = Cow::Owned(format!(
                "the block's arrays take {} bytes, and {limit} may be declared",
                self.block.shared.used()
            ));
            self.report(fault);
        }
        address
    }
}

/// Sizes are powers of two: a mask, since a division would cost as much as the
/// rest of an access.
#[inline]
pub(super) fn misaligned(address: u64, bytes: usize) -> bool {
    address & (bytes.min(16) as u64 - 1) != 0
}

pub(super) fn poison(value: &mut [u8]) {
    for bytes in value.chunks_exact_mut(4) {
        bytes.copy_from_slice(&POISON.to_ne_bytes());
    }
}

#[inline]
pub(super) fn words(value: &[u8]) -> impl Iterator<Item = u32> {
    value
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(super) fn describe(what: &str, detail: &str) -> String {
    if detail.is_empty() {
        what.to_owned()
    } else {
        format!("{what}, {detail}")
    }
}
