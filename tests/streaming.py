"""Slow, plain versions of the streaming partitioners, with the tie rules of the fast ones."""

M64 = 2**64 - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def hash_of(seed, value):
    return mix(mix(seed & M64) ^ value)


def degrees_of(edges, n):
    d = [0] * n
    for u, v in edges:
        if u != v:
            d[u] += 1
            d[v] += 1
    return d


def spring(edges, n, k, balance, threshold=0.1, online=False, degrees=None):
    """Return owner, sizes of the clusters before merging, and after."""
    d = [0] * n if online else list(degrees) if degrees is not None else degrees_of(edges, n)
    limit = threshold * (2 * len(edges) if online else sum(d)) / k
    cluster, volume, richest = {}, [], {}
    richest_degree = [0] * n
    for u, v in edges:
        if u == v:
            continue
        if online:
            for w in (u, v):
                d[w] += 1
                if w in cluster:
                    volume[cluster[w]] += 1
        for w in (u, v):
            if w not in cluster:
                cluster[w] = len(volume)
                volume.append(d[w])
        a, b = cluster[u], cluster[v]
        if a != b and volume[a] <= limit and volume[b] <= limit:
            mover, old, new = (u, a, b) if volume[a] <= volume[b] else (v, b, a)
            volume[old] -= d[mover]
            volume[new] += d[mover]
            cluster[mover] = new
        for w, other in ((u, v), (v, u)):
            if richest_degree[w] < d[other]:
                richest_degree[w], richest[w] = d[other], other
    founded = sorted(set(cluster.values()))
    members = {c: sorted(v for v in cluster if cluster[v] == c) for c in founded}
    before = [len(members[c]) for c in founded]
    most = balance * n / k
    # One live cluster is a list of the clusters that it was merged from.
    groups = {c: [c] for c in founded}
    group_of = {c: c for c in founded}
    size = {c: len(members[c]) for c in founded}
    top = {c: min(members[c], key=lambda v: (-richest_degree[v], v)) for c in founded}
    todo = set(founded)
    while todo:
        i = min(todo, key=lambda c: (size[c], c))
        todo.remove(i)
        t = group_of[cluster[richest[top[i]]]] if top[i] in richest else i
        if t == i or size[i] + size[t] > most:
            continue
        for c in groups[i]:
            group_of[c] = t
        groups[t] += groups.pop(i)
        size[t] += size.pop(i)
        if richest_degree[top[t]] < richest_degree[top[i]]:
            top[t] = top[i]
        todo.add(t)
    after = [size[c] for c in founded if c in groups]
    owner, load = [-1] * n, [0] * k
    least = lambda: load.index(min(load))
    place = lambda nodes, p: [owner.__setitem__(v, p) for v in nodes] and load.__setitem__(p, load[p] + len(nodes))
    for r in sorted(groups, key=lambda c: (-size[c], c)):
        t = least()
        whole = load[t] + size[r] <= most
        for c in sorted(groups[r], key=lambda c: (-len(members[c]), c)):
            if not whole and load[t] + len(members[c]) > most:
                t = least()
            if whole or load[t] + len(members[c]) <= most:
                place(members[c], t)
    for v in range(n):
        if owner[v] < 0:
            place([v], least())
    return owner, before, after


def targets(replicas, n, k, seed):
    """One replica of each node, drawn by hash; the others to the part that owns fewest."""
    owner, load = [-1] * n, [0] * k
    for v in range(n):
        if replicas[v]:
            owner[v] = sorted(replicas[v])[hash_of(seed, v) % len(replicas[v])]
            load[owner[v]] += 1
    for v in range(n):
        if owner[v] < 0:
            owner[v] = load.index(min(load))
            load[owner[v]] += 1
    return owner


class Cut:
    def __init__(self, n, k):
        self.k, self.replicas, self.load = k, [set() for _ in range(n)], [0] * k

    def put(self, u, v, p):
        self.replicas[u].add(p)
        self.replicas[v].add(p)
        self.load[p] += 1
        return p

    def least(self, parts):
        return min(parts, key=lambda p: (self.load[p], p))


def dbh(edges, n, k, seed):
    cut, d = Cut(n, k), degrees_of(edges, n)
    return cut, [-1 if u == v else cut.put(u, v, hash_of(seed, min((d[u], u), (d[v], v))[1]) % k) for u, v in edges]


def greedy(edges, n, k):
    cut, left, parts = Cut(n, k), degrees_of(edges, n), []
    for u, v in edges:
        if u == v:
            parts.append(-1)
            continue
        a, b = cut.replicas[u], cut.replicas[v]
        allowed = (a & b) or (a if a and b and left[u] >= left[v] else b if a and b else a or b or range(k))
        left[u] -= 1
        left[v] -= 1
        parts.append(cut.put(u, v, cut.least(allowed)))
    return cut, parts


def hdrf(edges, n, k, weight=1.0, epsilon=1.0):
    cut, d, parts = Cut(n, k), [0] * n, []
    for u, v in edges:
        if u == v:
            parts.append(-1)
            continue
        d[u] += 1
        d[v] += 1
        g = lambda w: 1 + (1 - d[w] / (d[u] + d[v]))
        high, low = max(cut.load), min(cut.load)
        score = lambda p: (
            (g(u) if p in cut.replicas[u] else 0.0) + (g(v) if p in cut.replicas[v] else 0.0)
            + weight * (high - cut.load[p]) / (epsilon + (high - low))
        )  # fmt: skip
        parts.append(cut.put(u, v, max(range(k), key=lambda p: (score(p), -p))))
    return cut, parts


def two_phase(edges, n, k, seed, capacity=1.05):
    cut, d = Cut(n, k), degrees_of(edges, n)
    both = sum(d)
    cluster, volume = {}, []
    for u, v in edges:
        if u == v:
            continue
        for w in (u, v):
            if w not in cluster:
                cluster[w] = len(volume)
                volume.append(d[w])
        a, b = cluster[u], cluster[v]
        if volume[a] * k > both or volume[b] * k > both:
            continue
        mover, old, new = (u, a, b) if volume[a] - d[u] <= volume[b] - d[v] else (v, b, a)
        if (volume[new] + d[mover]) * k <= both:
            volume[old] -= d[mover]
            volume[new] += d[mover]
            cluster[mover] = new
    part, heavy = {}, [0] * k
    for c in sorted((c for c in range(len(volume)) if volume[c]), key=lambda c: (-volume[c], c)):
        part[c] = heavy.index(min(heavy))
        heavy[part[c]] += volume[c]
    full = int(capacity * (both // 2) / k)

    def with_room(u, v, p):
        if cut.load[p] < full:
            return p
        high = max((d[u], -u, u), (d[v], -v, v))[2]
        p = hash_of(seed, high) % k
        return p if cut.load[p] < full else cut.least(range(k))

    def score(u, v, p):
        of_u, of_v = volume[cluster[u]], volume[cluster[v]]
        total = 0.0
        if p in cut.replicas[u]:
            total += 1 + (1 - d[u] / (d[u] + d[v]))
        if p in cut.replicas[v]:
            total += 1 + (1 - d[v] / (d[v] + d[u]))
        if part[cluster[u]] == p:
            total += of_u / (of_u + of_v)
        if part[cluster[v]] == p:
            total += of_v / (of_u + of_v)
        return total

    parts = [-1] * len(edges)
    for is_second in (False, True):
        for e, (u, v) in enumerate(edges):
            if u == v:
                continue
            pu, pv = part[cluster[u]], part[cluster[v]]
            if (pu != pv) == is_second:
                p = pu if pu == pv or score(u, v, pu) >= score(u, v, pv) else pv
                parts[e] = cut.put(u, v, with_room(u, v, p))
    return cut, parts


def halo(edges, owner, k, hops):
    """[q][p]: nodes of q within hops edges of a node of p, p != q."""
    near = [set() for _ in owner]
    for u, v in edges:
        near[u].add(v)
        near[v].add(u)
    rows = [[0] * k for _ in range(k)]
    for p in range(k):
        held = {v for v in range(len(owner)) if owner[v] == p}
        for _ in range(hops):
            held |= {u for v in held for u in near[v]}
        for v in held:
            rows[owner[v]][p] += owner[v] != p
    return rows
