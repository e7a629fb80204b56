"""The last level of volume refinement in plain Python: same noise, same order, same tie rules, all costs counted anew."""

import math

import numpy as np
from streaming import M64, mix

F = np.float32
NOISES, BLOCK = 1 << 16, 64


NOISE = [F(-math.log(-math.log(((mix(i) >> 11) + 0.5) * 2.0**-53))) for i in range(NOISES + 64)]


class Reference:
    """readers_of[v]: the set of readers of v's row; parts and work of vertices, which stand part after part."""

    def __init__(self, readers_of, part, work, k, balance, seed, send=True, receive=False, both=False):
        self.readers_of, self.part, self.work, self.k, self.balance, self.seed = (
            readers_of, list(part), list(work), k, balance, seed,
        )  # fmt: skip
        self.read_by = [sorted(j for j in range(len(part)) if v in readers_of[j]) for v in range(len(part))]
        self.priced, self.both = (send, receive), both
        self.sums = [[0.0] * k, [0.0] * k]
        self.mean = 0.0
        for w in self.work:
            self.mean += w / k
        self.moves = self.sweeps = 0
        self.over, self.cap, self.price = [F(0)] * k, 0.0, 0.0
        self.set_prices()

    def rows(self) -> np.ndarray:
        rows = np.zeros((self.k, self.k))
        for v, readers in enumerate(self.readers_of):
            for p in {self.part[u] for u in readers} - {self.part[v]}:
                rows[self.part[v], p] += 1
        return rows

    def work_of(self, p: int) -> float:
        return float(sum(w for w, q in zip(self.work, self.part) if q == p))

    def excess(self, side: int) -> list[float]:
        rows = self.rows()
        of = 0.5 * (rows.sum(1) + rows.sum(0)) if self.both else rows.sum(0 if side else 1)
        return [float(r) * self.k / (1.03 * max(float(rows.sum()), 1.0)) - 1 for r in of]

    def set_prices(self) -> None:
        of = [[F(1)] * self.k, [F(1 if self.priced[1] else 0)] * self.k]
        for side in (0, 1):
            if self.priced[side]:
                mu = [
                    math.exp(min(max(s + 4 * max(0.0, e), -3.0), 3.0))
                    for s, e in zip(self.sums[side], self.excess(side))
                ]
                most, unit = max(1, self.k * 9 // 10), 0.0
                for m in sorted(mu)[:most]:
                    unit += m / most
                of[side] = [F(m / unit) for m in mu]
        self.has_reader_prices = self.priced[1] or self.both
        share = F(0.5 if self.has_reader_prices else 1)
        self.of_owner = [share * m for m in of[0]]
        self.of_reader = [share * m for m in of[0 if self.both else 1]]

    def integrate(self) -> None:
        for side in (0, 1):
            if self.priced[side]:
                self.sums[side] = [min(max(s + 0.1 * e, 0.0), 4.0) for s, e in zip(self.sums[side], self.excess(side))]
        self.set_prices()

    def scores(self, v: int) -> dict[int, np.float32]:
        """Score of each part that v's nets touch, of a dear part all: what v there saves against a row for v alone of each net."""
        a, saved, touched, read = self.part[v], [F(0)] * self.k, {self.part[v]}, F(0)
        for j in self.read_by[v]:
            have = {self.part[u] for u in self.readers_of[j] if u != v} | {self.part[j]}
            touched |= have
            for x in have:
                saved[x] += self.of_owner[self.part[j]] + (self.of_reader[x] if self.has_reader_prices else F(0))
            read += F(1)
        parts = {self.part[u] for u in self.readers_of[v]}
        touched |= parts
        for x in parts:
            saved[x] += self.of_owner[x] + (self.of_reader[x] if self.has_reader_prices else F(0))
        if self.of_owner[a] + (self.of_reader[a] if self.has_reader_prices else F(0)) > 4:
            touched = set(range(self.k))
        paid = [F(len(parts)) * m for m in self.of_owner]
        if self.has_reader_prices:
            paid = [m + read * r for m, r in zip(paid, self.of_reader)]
        return {x: saved[x] - paid[x] for x in sorted(touched)} if a in touched else {}

    def set_over(self, parts) -> None:
        for p in parts:
            of_mean = self.work_of(p) / self.mean
            self.over[p] = F(self.price * (of_mean - 1) + 16 * max(0.0, of_mean - self.cap))

    def choose(self, v, t, noise, cap, bonus):
        a, score, work = self.part[v], self.scores(v), F(self.work[v])
        stay = score[a] - work * (self.over[a] - F(self.price) * work / F(self.mean)) - F(bonus)
        best, top, following = a, stay + t * NOISE[noise + a], F(-np.inf)
        for p, s in score.items():
            if p == a or self.work_of(p) + float(work) > cap:
                continue
            plain = s - work * self.over[p]
            following = max(following, plain)
            if plain + t * NOISE[noise + p] > top:
                best, top = p, plain + t * NOISE[noise + p]
        return best, F(np.inf) if following == -np.inf else stay - following

    def move(self, v: int, b: int) -> None:
        a, self.part[v] = self.part[v], b
        self.set_over((a, b))
        self.moves += 1
        if self.moves % max(64, self.k) == 0:
            self.set_prices()

    def sweep(self, s: int, temperature: float, cap: float, is_final: bool) -> None:
        n = len(self.part)
        t = F(temperature)
        wide = F(8) * max(t, F(0.05))
        self.cap, self.price = (
            cap,
            min(1.0, 1.65 * math.pow(max(float(self.rows().sum()), 1.0) / (self.mean * self.k), 0.25)),
        )
        self.set_over(range(self.k))
        self.sweeps += 1
        key = mix(self.seed << 32 ^ self.sweeps)
        seen = 0
        for _, first in sorted((mix(key ^ first), first) for first in range(0, n, BLOCK)):
            for v in range(first, min(first + BLOCK, n)):
                if seen % (n // 8 + 1) == 0:
                    self.integrate()
                seen += 1
                a = self.part[v]
                must_leave = is_final and self.work_of(a) > self.balance * self.mean
                if (self.wake[v] > s and not must_leave) or self.part.count(a) == 1:
                    continue
                b, margin = self.choose(v, t, mix((key + v) & M64) % NOISES, cap * self.mean, 1.5 if must_leave else 0)
                if b != a:
                    self.move(v, b)
                elif margin > wide:
                    self.wake[v] = s + 4

    def evict(self, beyond: bool) -> bool:
        cap, order, has_moved = self.balance * self.mean, [], False
        for v, a in enumerate(self.part):
            if self.work_of(a) > cap and (beyond or self.work[v] <= int(cap)):
                order.append((min(self.choose(v, F(0), 0, cap, 0)[1], F(1e9)) / F(self.work[v]), v))
        for _, v in sorted(order):
            a = self.part[v]
            if self.work_of(a) <= cap or self.part.count(a) == 1:
                continue
            b, _ = self.choose(v, F(0), 0, cap, np.inf)
            if b == a:
                b = min(range(self.k), key=self.work_of)
            heavier = self.work_of(b) + self.work[v]
            if heavier <= cap or (beyond and heavier < self.work_of(a)):
                self.move(v, b)
                has_moved = True
        return has_moved

    def finish(self, sweeps: int, start: float = 0.5) -> list[int]:
        self.wake = [0] * len(self.part)
        for s in range(sweeps):
            passed = min(1.0, s / (0.7 * sweeps))
            cap = max(self.balance, self.balance + (1 - passed) * (1.3 - self.balance))
            self.sweep(s, start * (sweeps - 1 - s) / (sweeps - 1) if sweeps > 1 else 0.0, cap, passed == 1.0)
        for _ in range(8):
            if not self.evict(False):
                break
        while self.evict(True):
            pass
        return self.part
