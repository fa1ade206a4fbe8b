#!/usr/bin/env bash
# Python for Arm, and an emulator that runs it: 110 MB of Debian's packages, unpacked into a folder. Nothing is installed.
#   scripts/arm64.sh FOLDER
set -euo pipefail
command -v apt-get >/dev/null || exit 0
mkdir -p "$1" && cd "$1" && rm -rf -- *
mkdir -p lists/partial cache/archives/partial root host && touch status
echo "deb http://deb.debian.org/debian trixie main" > sources.list
cat > apt.conf <<END
APT::Architecture "$(dpkg --print-architecture)";
APT::Architectures { "$(dpkg --print-architecture)"; "arm64"; };
APT::Sandbox::User "";
Dir::State::lists "$PWD/lists";
Dir::Cache "$PWD/cache";
Dir::State::Status "$PWD/status";
Dir::Etc::sourcelist "$PWD/sources.list";
Dir::Etc::sourceparts "/dev/null";
END
export APT_CONFIG=$PWD/apt.conf
apt-get update -qq
apt-get install -qq --yes --download-only --no-install-recommends \
	qemu-user python3.13-minimal:arm64 libpython3.13-stdlib:arm64 libstdc++6:arm64 >/dev/null
for package in cache/archives/*_arm64.deb; do dpkg -x "$package" root; done
dpkg -x cache/archives/qemu-user_*.deb host
find host -type f ! -name qemu-aarch64 -delete
ln -s usr/lib root/lib
rm -rf lists cache
