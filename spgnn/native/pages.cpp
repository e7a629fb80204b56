// Pages that torch's large tensors free stay with the process, and the next tensors get them.
//
// glibc maps a large tensor, which is then faulted in page by page, and unmaps it when it dies. Told to keep it
// (mallopt), its heap falls into holes, as aligned tensors of 2 MB and more leave none that fits the next: 20 to 65 %
// more memory. Here a request that no free block holds gathers pages of several by mremap, so that no more is held than
// tensors took at once. torch has no interface for an allocator of the CPU: libc10's calls of posix_memalign and free
// are led here, in its table of imports.
#include <pybind11/pybind11.h>

#include <cstdint>

#if defined(__linux__) && defined(__LP64__)
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t UNIT = 2 << 20;      // of blocks: a huge page
constexpr size_t LEAST = 4 * UNIT;    // bytes of a tensor; smaller ones are glibc's
constexpr size_t MOST_PIECES = 4096;  // of free blocks: Linux allows a process 65,530 mappings

struct Piece {  // within one mapping, as mremap moves no more at once
    char* start;
    size_t size;
};

class Pages {
  public:
    std::mutex lock;

    // A block of a multiple of UNIT bytes; null where the system has no more.
    void* take(size_t size) {
        std::lock_guard<std::mutex> held(lock);
        void* start = reused(size);
        if (!start) start = gathered(size);
        if (!start && unmap()) start = gathered(size);  // an address space that is limited
        return start;
    }

    // Whether it was a block of these pages.
    bool free(void* start) {
        std::lock_guard<std::mutex> held(lock);
        auto found = used_.find(start);
        if (found == used_.end()) return false;
        free_.push_back(std::move(found->second));
        used_.erase(found);
        return true;
    }

    size_t give_back() {
        std::lock_guard<std::mutex> held(lock);
        return unmap();
    }

  private:
    using Block = std::vector<Piece>;  // one after the other in memory
    std::vector<Block> free_;          // the last was freed last
    std::unordered_map<void*, Block> used_;

    size_t unmap() {
        size_t given = 0;
        for (const Block& block : free_) {
            given += bytes(block);
            munmap(block.front().start, bytes(block));
        }
        free_.clear();
        return given;
    }

    static size_t bytes(const Block& block) {
        return size_t(block.back().start + block.back().size - block.front().start);
    }

    // The first bytes of a block, which keeps the others.
    static Block cut(Block& block, size_t size) {
        Block first;
        size_t taken = 0;
        for (; !block.empty() && size; size -= taken) {
            Piece& piece = block.front();
            taken = std::min(size, piece.size);
            first.push_back({piece.start, taken});
            piece = {piece.start + taken, piece.size - taken};
            if (!piece.size) block.erase(block.begin());
        }
        return first;
    }

    void* use(Block block) {
        void* start = block.front().start;
        used_.emplace(start, std::move(block));
        return start;
    }

    // The smallest free block that holds it, of equal ones the last.
    void* reused(size_t size) {
        size_t best = free_.size();
        for (size_t b = free_.size(); b-- > 0;)
            if (bytes(free_[b]) >= size && (best == free_.size() || bytes(free_[b]) < bytes(free_[best]))) best = b;
        if (best == free_.size()) return nullptr;
        Block first = cut(free_[best], size);
        if (free_[best].empty()) free_.erase(free_.begin() + best);
        return use(std::move(first));
    }

    // New addresses, with the pages of the largest free blocks and, where those do not suffice, new pages.
    void* gathered(size_t size) {
        size_t pieces = 0;
        for (const Block& block : free_) pieces += block.size();
        if (pieces > MOST_PIECES) unmap();
        auto* range = static_cast<char*>(
            mmap(nullptr, size + UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (range == MAP_FAILED) return nullptr;
        const size_t before = (UNIT - reinterpret_cast<uintptr_t>(range) % UNIT) % UNIT;
        if (before) munmap(range, before);
        if (before < UNIT) munmap(range + before + size, UNIT - before);
        char *to = range + before, *const end = to + size;
        std::sort(free_.begin(), free_.end(), [](const Block& a, const Block& b) { return bytes(a) < bytes(b); });
        Block made;
        while (to < end && !free_.empty()) {
            for (const Piece& piece : cut(free_.back(), size_t(end - to))) {
                if (mremap(piece.start, piece.size, piece.size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
                    return nullptr;  // the system's tables are full; what was gathered is lost
                made.push_back({to, piece.size});
                to += piece.size;
            }
            if (free_.back().empty()) free_.pop_back();
        }
        const char* asked = std::getenv("THP_MEM_ALLOC_ENABLE");  // as torch does
        if (to < end && asked && asked[0] == '1') madvise(to, size_t(end - to), MADV_HUGEPAGE);
        if (to < end) made.push_back({to, size_t(end - to)});
        return use(std::move(made));
    }
};

Pages& pages() {
    static auto* made = new Pages;  // never destroyed: tensors may die after it
    return *made;
}

int kept_memalign(void** out, size_t alignment, size_t size) {
    if (size < LEAST || alignment > UNIT) return posix_memalign(out, alignment, size);
    void* start = size > SIZE_MAX - UNIT ? nullptr : pages().take((size + UNIT - 1) / UNIT * UNIT);
    if (!start) return ENOMEM;
    *out = start;
    return 0;
}

void kept_free(void* start) {
    if (!start || reinterpret_cast<uintptr_t>(start) % UNIT || !pages().free(start)) std::free(start);
}

void replace(void** slot, void* function) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    auto* from = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(slot) / page * page);
    if (!mprotect(from, page, PROT_READ | PROT_WRITE)) *slot = function;
}

// Leads libc10's imports of posix_memalign and free here; returns 1 if it has them, which ends the search.
int lead(dl_phdr_info* info, size_t, void*) {
    if (!info->dlpi_name || !std::strstr(info->dlpi_name, "libc10.so")) return 0;
    const ElfW(Dyn)* dynamic = nullptr;
    for (int p = 0; p < info->dlpi_phnum; ++p)
        if (info->dlpi_phdr[p].p_type == PT_DYNAMIC)
            dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[p].p_vaddr);
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    const ElfW(Rela)* calls = nullptr, *others = nullptr;
    size_t call_bytes = 0, other_bytes = 0;
    for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
        const auto at = dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
        if (dynamic->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(at);
        if (dynamic->d_tag == DT_JMPREL) calls = reinterpret_cast<const ElfW(Rela)*>(at);
        if (dynamic->d_tag == DT_RELA) others = reinterpret_cast<const ElfW(Rela)*>(at);
        if (dynamic->d_tag == DT_PLTRELSZ) call_bytes = dynamic->d_un.d_val;
        if (dynamic->d_tag == DT_RELASZ) other_bytes = dynamic->d_un.d_val;
    }
    if (!symbols || !names) return 0;
    void** memalign_slot = nullptr;
    std::vector<void**> free_slots;
    const auto find = [&](const ElfW(Rela)* entries, size_t n_bytes) {
        for (size_t e = 0; entries && e < n_bytes / sizeof(ElfW(Rela)); ++e) {
            const size_t symbol = ELF64_R_SYM(entries[e].r_info);
            if (!symbol) continue;
            const char* name = names + symbols[symbol].st_name;
            auto** slot = reinterpret_cast<void**>(info->dlpi_addr + entries[e].r_offset);
            if (!std::strcmp(name, "posix_memalign")) memalign_slot = slot;
            if (!std::strcmp(name, "free")) free_slots.push_back(slot);
        }
    };
    find(calls, call_bytes);
    find(others, other_bytes);
    if (!memalign_slot || free_slots.empty()) return 0;
    for (void** slot : free_slots) replace(slot, reinterpret_cast<void*>(kept_free));
    replace(memalign_slot, reinterpret_cast<void*>(kept_memalign));  // last: free knows the blocks
    return 1;
}

bool keep() {
    static const bool is_kept = [] {
        pages();
        pthread_atfork([] { pages().lock.lock(); }, [] { pages().lock.unlock(); }, [] { pages().lock.unlock(); });
        return dl_iterate_phdr(lead, nullptr) == 1;
    }();
    return is_kept;
}

size_t give_back() { return pages().give_back(); }

}  // namespace
#else
namespace {
bool keep() { return false; }
size_t give_back() { return 0; }
}  // namespace
#endif

PYBIND11_MODULE(_pages, m) {
    m.def("keep", &keep, "Keep the pages of torch's large tensors from now on; return whether that is possible here.");
    m.def("give_back", &give_back, "Give kept pages that no tensor has back to the system; return their bytes.");
}
