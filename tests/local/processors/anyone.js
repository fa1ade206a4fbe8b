// A function of somebody else's, in another language: it answers as docs/processor.md says.
exports.handler = async ({ key, kind, versionId, attempt }) => {
  if (key.includes("poison")) return { unprocessable: "no invoice in it" };
  if (key.includes("thrown") && attempt === 1) throw new Error("boom in node");
  if (key.includes("slow") && attempt === 1) await new Promise((resolve) => setTimeout(resolve, 10000));
  return { commit: `${kind} ${versionId} at attempt ${attempt}` };
};
