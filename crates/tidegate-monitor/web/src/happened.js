// Says in words what changed in a cluster over a history. Pure.

import { whole } from "./format.js";

// Finds the changes in a history: other leaders, elections and moves, as pairs of uptime and text, the newest
// first.
export function events(h) {
  const out = [];
  const several = (n, one) => (n === 1 ? `1 ${one}` : `${whole(n)} ${one}s`);
  (h.uptime_ms ?? []).forEach((ms, i) => {
    const [leader, old] = [h.leader?.[i], h.leader?.[i - 1]];
    const [moving, before] = [h.moving?.[i] ?? 0, h.moving?.[i - 1] ?? 0];
    if (h.elections?.[i] > 0) out.push([ms, `${several(h.elections[i], "election")} in the groups of this node`]);
    if (i === 0) return;
    if (leader !== old && leader) out.push([ms, `${leader} leads the group of all nodes${old ? `, in place of ${old}` : ""}`]);
    if (leader !== old && !leader) out.push([ms, `no node leads the group of all nodes any more; ${old} did`]);
    if (moving > 0 && before === 0) out.push([ms, `${several(moving, "stream")} begin to move`.replace("1 stream begin", "1 stream begins")]);
    if (moving === 0 && before > 0) out.push([ms, "no stream moves any more"]);
  });
  return out.reverse();
}
