################################################################################
#
# beanpole
#
################################################################################

BEANPOLE_VERSION = @VERSION@
# The tarball of `make dist`, which contains all crates. Copy it to $(DL_DIR)/beanpole, or set its directory here.
BEANPOLE_SOURCE = beanpole-$(BEANPOLE_VERSION).tar.gz
BEANPOLE_SITE = $(BR2_EXTERNAL_BEANPOLE_PATH)
BEANPOLE_SITE_METHOD = file
BEANPOLE_LICENSE = MIT
BEANPOLE_LICENSE_FILES = LICENSE

define BEANPOLE_USERS
	beanpole -1 beanpole -1 * /var/lib/beanpole - - work queue
endef

define BEANPOLE_INSTALL_INIT_SYSV
	$(INSTALL) -D -m 0755 $(@D)/pkg/buildroot/S60beanpole $(TARGET_DIR)/etc/init.d/S60beanpole
endef

define BEANPOLE_INSTALL_INIT_SYSTEMD
	sed 's|@BINDIR@|/usr/bin|' $(@D)/pkg/systemd/beanpole.service > $(@D)/beanpole.service
	$(INSTALL) -D -m 0644 $(@D)/beanpole.service $(TARGET_DIR)/usr/lib/systemd/system/beanpole.service
endef

$(eval $(cargo-package))
